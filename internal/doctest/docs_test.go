package doctest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"go/format"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/settings"
)

var write = flag.Bool("write", false, "write the shared text into the guide of the broker")

const (
	root       = "../.."
	readme     = "README.md"
	sdkReadme  = "generated/go/fitz/README.md"
	sdkGuide   = "docs/guides/use-the-sdk.md"
	guideFiles = "docs/guides/*.md"

	developmentFiles = "docs/development/*.md"
	referenceFiles   = "docs/reference/*.md"
	architecture     = "docs/architecture.md"
	migration        = "docs/migration.md"
	suitePage        = "docs/development/conformance.md"
	driverPage       = "docs/development/driver-protocol.md"

	brokerText     = "docs/guides/run-the-broker.md"
	productionText = "docs/guides/run-the-broker-in-production.md"

	quickStartLines = 15 // that are not empty
	toolTimeout     = 3 * time.Minute
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func read(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// documents are the names of all documents that are tested, below the root of the module.
func documents(t testing.TB) []string {
	t.Helper()
	names := []string{readme, sdkReadme, architecture, migration}
	for _, pattern := range []string{guideFiles, developmentFiles, referenceFiles} {
		pages, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(pages) == 0 {
			t.Fatalf("no %s: %v", pattern, err)
		}
		for _, page := range pages {
			names = append(names, path.Join(path.Dir(pattern), filepath.Base(page)))
		}
	}
	return names
}

// blocks are all blocks of a language.
func blocks(t testing.TB, language string) []Block {
	t.Helper()
	var out []Block
	for _, name := range documents(t) {
		found, err := Blocks(name, read(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range found {
			if b.Language() == language {
				out = append(out, b)
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("no blocks of %s", language)
	}
	return out
}

// scratch is a module outside of this one that stands on this checkout.
type scratch struct {
	t   testing.TB
	dir string
}

func newScratch(t testing.TB) scratch {
	t.Helper()
	checkout, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	module := read(t, "go.mod")
	version := regexp.MustCompile(`(?m)^go .*$`).FindString(module)
	// With all that the checkout requires the Go tool needs no more of the modules than the checkout does; otherwise it would look for
	// descriptions of modules that a machine may have never needed.
	required := strings.Join(regexp.MustCompile(`(?ms)^require \(.*?^\)$`).FindAllString(module, -1), "\n\n")
	s := scratch{t, t.TempDir()}
	s.add("go.mod", fmt.Sprintf("module scratch\n\n%s\n\nrequire github.com/fitzwire/fitz v0.0.0\n\n%s\n\nreplace github.com/fitzwire/fitz => %q\n",
		version, required, checkout))
	s.add("go.sum", read(t, "go.sum"))
	return s
}

func (s scratch) add(name, text string) {
	s.t.Helper()
	target := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(target, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// tool runs the Go tool in the module, with a broker at url and no other network.
func (s scratch) tool(url string, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(s.t.Context(), toolTimeout)
	defer stop()
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = s.dir
	command.Env = append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "GOWORK=off", "GOPROXY=off", "GOSUMDB=off", fitz.EnvURL+"="+url)
	out, err := command.CombinedOutput()
	return string(out), err
}

func startBroker(t testing.TB) (url string) {
	t.Helper()
	c, _, err := config.Load([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	b, err := broker.Start(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return "fitz://" + b.Addresses()[settings.ListenerTCP.Name]
}

// caller is the program that runs bodies of functions, each with a client and a lease of its own.
const caller = `package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fitzwire/fitz/generated/go/fitz"
%s)

func main() {
	failed := false
	for where, block := range map[string]func(context.Context, *fitz.Client, *fitz.Lease, func(context.Context) error, func(context.Context, uint64) error) error{
%s	} {
		if err := call(where, block); err != nil {
			fmt.Println(where+":", err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
}

func call(where string, block func(context.Context, *fitz.Client, *fitz.Lease, func(context.Context) error, func(context.Context, uint64) error) error) error {
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	client, err := fitz.Connect(ctx, "")
	if err != nil {
		return err
	}
	defer client.Close()
	lease, err := client.Lease().Acquire(ctx, "lease://doc/blocks/lease", 30*time.Second, nil)
	if err != nil {
		return err
	}
	work := func(ctx context.Context) error { return ctx.Err() }
	write := func(ctx context.Context, token uint64) error {
		if token == 0 {
			return fmt.Errorf("no token")
		}
		return ctx.Err()
	}
	if err := block(ctx, client, lease, work, write); err != nil {
		return err
	}
	return lease.Err() // no block but the end of its client ends the lease
}
`

// Every block of Go compiles in a module of its own, and those that are marked run against a live broker.
func TestGoBlocks(t *testing.T) {
	s := newScratch(t)
	var imports, table strings.Builder
	var tests, programs []string
	for i, b := range blocks(t, "go") {
		name := fmt.Sprintf("block%d", i)
		source, err := Wrap(b, name)
		if err != nil {
			t.Error(err)
			continue
		}
		file := name + "/block.go"
		switch {
		case source.Form == Declarations && strings.Contains(b.Text, "*testing.T"):
			file = name + "/block_test.go"
			if b.Runs() {
				tests = append(tests, "./"+name)
			}
		case source.Form == Program && b.Runs():
			programs = append(programs, "./"+name)
		case source.Form == Body && b.Runs():
			fmt.Fprintf(&imports, "\t%q\n", "scratch/"+name)
			fmt.Fprintf(&table, "\t\t%q: %s.Block,\n", b, name)
		case b.Runs():
			t.Errorf("%v: declarations without a test cannot run", b)
		}
		s.add(file, source.Text)
	}
	s.add("caller/main.go", fmt.Sprintf(caller, imports.String(), table.String()))
	if out, err := s.tool("", "vet", "-unreachable=false", "./..."); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if imports.Len() == 0 || len(tests) == 0 || len(programs) == 0 {
		t.Fatalf("not every form is there to run: %d tests, %d programs, bodies:\n%s", len(tests), len(programs), &table)
	}
	url := startBroker(t)
	for _, args := range append([][]string{{"run", "./caller"}, append([]string{"test", "-count=1"}, tests...)}, runs(programs)...) {
		if out, err := s.tool(url, args...); err != nil {
			t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func runs(programs []string) (out [][]string) {
	for _, p := range programs {
		out = append(out, []string{"run", p})
	}
	return out
}

// A block that does not compile is found, with its place in the document.
func TestBrokenBlockIsFound(t *testing.T) {
	s := newScratch(t)
	source, err := Wrap(Block{File: "guide.md", Line: 41, Info: "go", Text: "fmt.Println(client)\nclient.Lease().Acquired(ctx)\n"}, "broken")
	if err != nil {
		t.Fatal(err)
	}
	s.add("broken/block.go", source.Text)
	if out, err := s.tool("", "vet", "./..."); err == nil || !strings.Contains(out, "guide.md:42") {
		t.Errorf("%v: %s", err, out)
	}
}

// Blocks are formatted as gofmt does.
func TestGoBlocksAreFormatted(t *testing.T) {
	for _, b := range blocks(t, "go") {
		formatted, err := format.Source([]byte(b.Text))
		if err != nil {
			t.Errorf("%v: %v", b, err)
		} else if !bytes.Equal(formatted, []byte(b.Text)) {
			t.Errorf("%v: not formatted; gofmt makes\n%s", b, formatted)
		}
	}
}

// The quick start, pasted as it is into an empty module, acquires and lists, in at most 15 lines.
func TestQuickStart(t *testing.T) {
	for _, name := range []string{sdkGuide, sdkReadme} {
		t.Run(filepath.Base(name), func(t *testing.T) { testQuickStart(t, name) })
	}
}

func testQuickStart(t *testing.T, name string) {
	found, err := Blocks(name, read(t, name))
	if err != nil {
		t.Fatal(err)
	}
	var text string
	for _, b := range found {
		if b.Info == "go run" {
			text = b.Text
			break
		}
	}
	if lines := len(strings.Fields(regexp.MustCompile(`(?m)^.*\S.*$`).ReplaceAllString(text, "line"))); lines == 0 || lines > quickStartLines {
		t.Errorf("%d lines of code, want at most %d", lines, quickStartLines)
	}
	url := startBroker(t)
	client, err := fitz.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	changes, err := client.Lease().Subscribe(t.Context(), "lease://demo/**", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newScratch(t)
	s.add("main.go", text)
	out, err := s.tool(url, "run", ".")
	if err != nil || !strings.Contains(out, "lease://demo/workers/ada ") || !strings.Contains(out, "error: <nil>") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, event := range []string{"acquired", "released by the end of the program"} {
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
		if change, err := changes.Next(ctx); err != nil || change.Route != "lease://demo/workers/ada" {
			t.Errorf("not %s: %v, %v", event, change, err)
		}
		stop()
	}
}

// The guide of the broker and the README of the SDK carry one text (L-02, A-40 to A-44, OB-70 to OB-75).
func TestSharedText(t *testing.T) {
	_, want, _, err := Shared(read(t, sdkReadme))
	if err != nil {
		t.Fatal(err)
	}
	before, have, after, err := Shared(read(t, brokerText))
	if err != nil {
		t.Fatal(err)
	}
	if *write {
		if err := os.WriteFile(filepath.Join(root, brokerText), []byte(before+want+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != want || len(want) < 1000 {
		t.Errorf("%s does not carry the text of %s; go test ./internal/doctest -run TestSharedText -write copies it", brokerText, sdkReadme)
	}
}

// What the documents for users must say of observation across realms: each clause in the text that guide and README share, and the
// advice of A-44 in the guide for production too.
func TestDisclosure(t *testing.T) {
	_, shared, _, err := Shared(read(t, brokerText))
	if err != nil {
		t.Fatal(err)
	}
	for clause, phrases := range map[string][]string{
		"L-02": {"One broker process is one universe"},
		"A-40": {"`*` or `**`", "explicit authority to observe across realms"},
		"A-41": {"that a route exists and is held", "logical owner id", "holder incarnation", "time of acquisition", "remaining time", "number of renewals", "every later change"},
		"A-42": {"gives no ownership", "write access to the exact route"},
		"A-43": {"stays inside the family", "not a tenant"},
		"A-44": {"narrowest pattern that serves it", "no secrets into route segments or owner ids"},
	} {
		for _, phrase := range phrases {
			if !strings.Contains(strings.Join(strings.Fields(shared), " "), phrase) {
				t.Errorf("%s: the shared text lacks %q", clause, phrase)
			}
		}
	}
	production := strings.Join(strings.Fields(read(t, productionText)), " ")
	for _, phrase := range []string{"narrowest pattern that serves it", "no secrets into them", "(" + path.Base(brokerText) + "#deployment-boundary-disclosure-and-the-worth-of-a-view)"} {
		if !strings.Contains(production, phrase) {
			t.Errorf("%s lacks %q", productionText, phrase)
		}
	}
}

// The numbers of the guide are those of the SDK (OB-40, OB-41, L-95, L-96).
func TestGuideNumbers(t *testing.T) {
	text := read(t, sdkGuide)
	seconds := func(d time.Duration) string { return fmt.Sprintf("%g s", d.Seconds()) }
	spread := func(d time.Duration) string {
		return fmt.Sprintf("| %s | %s to %s |", seconds(d), seconds(time.Duration(float64(d)*(1-fitz.DefaultReconcileJitter))), seconds(time.Duration(float64(d)*(1+fitz.DefaultReconcileJitter))))
	}
	for _, want := range []string{
		fmt.Sprintf("interval with the defaults (%s, %s, %g)", seconds(fitz.DefaultReconcileMin), seconds(fitz.DefaultReconcileMax), fitz.DefaultReconcileJitter),
		"| not given " + spread(fitz.DefaultReconcileMax),
		"| up to " + seconds(2*fitz.DefaultReconcileMin) + " " + spread(fitz.DefaultReconcileMin),
		"| 30 s " + spread(15*time.Second),
		"| from " + seconds(2*fitz.DefaultReconcileMax) + " " + spread(fitz.DefaultReconcileMax),
		fmt.Sprintf("at least %d ms, at most %s", fitz.DefaultLostMarginMin.Milliseconds(), seconds(fitz.DefaultLostMarginMax)),
		fmt.Sprintf("± %g %%", 100*fitz.DefaultRenewJitter),
		fmt.Sprintf("sees %d renewals", fitz.DefaultRenewFraction),
		seconds(fitz.DefaultAcquireWait) + " is served by asking the broker again",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("%s lacks %q", sdkGuide, want)
		}
	}
}

// packagePath is a code span that looks like a folder of this module.
var packagePath = regexp.MustCompile("`((?:broker|codegen|conformance|fitztest|generated|internal|sdk-templates|spec|tools)(?:/[a-z0-9_.-]+)*)`")

// Every folder and file that a document names is there, and the page about the suite names every package of it.
func TestNamedPathsExist(t *testing.T) {
	found := 0
	for _, name := range documents(t) {
		for _, match := range packagePath.FindAllStringSubmatch(read(t, name), -1) {
			found++
			if _, err := os.Stat(filepath.Join(root, strings.TrimSuffix(match[1], "/..."))); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d paths", found)
	}
	page := read(t, suitePage)
	packages, err := filepath.Glob(filepath.Join(root, "conformance/*/*.go"))
	if err != nil || len(packages) == 0 {
		t.Fatalf("no packages: %v", err)
	}
	for _, file := range packages {
		if span := "`conformance/" + filepath.Base(filepath.Dir(file)) + "`"; !strings.Contains(page, span) {
			t.Errorf("%s lacks %s", suitePage, span)
		}
	}
}
