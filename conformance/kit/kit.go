// Package kit puts a conformance run together out of a source tree: the specification, the scenarios, the golden vectors, and the programs
// that are asked when nobody names others. The command fitz-conformance and the Ginkgo suite use it.
package kit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fitzwire/fitz/conformance/brokerproc"
	"github.com/fitzwire/fitz/conformance/driver"
	"github.com/fitzwire/fitz/conformance/engine"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/scenario"
	"github.com/fitzwire/fitz/conformance/vectors"
)

// Programs of the tree.
const (
	DriverPackage     = "./generated/go/fitz/cmd/fitz-driver"
	BrokerPackage     = "./broker/cmd/fitzd"
	TestBrokerPackage = "./broker/cmd/fitzd-test"
)

// Tree is a source tree.
type Tree struct {
	Root      string
	Spec      *oracle.Spec
	Catalog   *scenario.Catalog
	Scenarios []*scenario.Scenario
	Mistakes  Mistakes // in scenario files, which are then not among Scenarios
	Vectors   []vectors.Vector
}

// FindRoot returns the closest folder from dir upwards that holds the specification.
func FindRoot(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "spec", "fitz.yaml")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("there is no spec/fitz.yaml in %s or above it; name the source tree with --root", dir)
		}
	}
}

// Mistakes is the findings about scenario files.
type Mistakes []scenario.Finding

// Error is one finding a line.
func (m Mistakes) Error() string {
	lines := make([]string, len(m))
	for i, f := range m {
		lines[i] = f.String()
	}
	return strings.Join(lines, "\n")
}

// Open reads a tree. Scenario files with mistakes are left out; Mistakes tells them.
func Open(root string) (*Tree, error) {
	t := &Tree{Root: root}
	specFiles := os.DirFS(filepath.Join(root, "spec"))
	var err error
	if t.Spec, err = oracle.Load(specFiles); err != nil {
		return nil, err
	}
	if t.Catalog, err = scenario.LoadCatalog(specFiles); err != nil {
		return nil, err
	}
	folder := filepath.Join("conformance", "scenarios")
	scenarios, mistakes, err := scenario.Load(os.DirFS(filepath.Join(root, folder)), t.Catalog)
	if err != nil {
		return nil, err
	}
	for i := range mistakes {
		mistakes[i].Pos.File = filepath.Join(folder, mistakes[i].Pos.File)
	}
	t.Scenarios, t.Mistakes = scenarios, mistakes
	t.Vectors, err = vectors.All(os.DirFS(filepath.Join(root, "generated", "vectors")))
	return t, err
}

// Config is a configuration with everything that comes of the tree.
func (t *Tree) Config() engine.Config {
	return engine.Config{
		Spec: t.Spec, SpecFiles: os.DirFS(filepath.Join(t.Root, "spec")), Scenarios: t.Scenarios, Vectors: t.Vectors,
	}
}

// Known reads the known failures of the tree.
func (t *Tree) Known() ([]engine.Known, error) {
	return engine.LoadKnown(filepath.Join(t.Root, "conformance", "known-failures.yaml"))
}

// Build builds a program of the tree into a folder and returns its path. The build cache of Go makes a second build cheap.
func (t *Tree) Build(ctx context.Context, into, pkg string, tags ...string) (string, error) {
	name := filepath.Join(into, filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", strings.Join(tags, ","), "-o", name, pkg)
	cmd.Dir = t.Root
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build %s: %w\n%s", pkg, err, out.Bytes())
	}
	return name, nil
}

// GoDriver builds the driver of the Go SDK.
func (t *Tree) GoDriver(ctx context.Context, into string, tags ...string) (engine.DriverSource, error) {
	name, err := t.Build(ctx, into, DriverPackage, tags...)
	if err != nil {
		return engine.DriverSource{}, err
	}
	s := Driver([]string{name}, driver.DefaultLimits)
	s.Name = "fitz-driver (Go)"
	return s, nil
}

// OwnBroker builds fitzd and fitzd-test.
func (t *Tree) OwnBroker(ctx context.Context, into string, tags ...string) (engine.BrokerSource, error) {
	realTime, err := t.Build(ctx, into, BrokerPackage, tags...)
	if err != nil {
		return engine.BrokerSource{}, err
	}
	virtual, err := t.Build(ctx, into, TestBrokerPackage, append([]string{"testclock"}, tags...)...)
	return engine.BrokerSource{Real: []string{realTime}, Virtual: []string{virtual}}, err
}

// Built is the Go driver and the brokers of the tree that stand in a folder already.
func Built(folder string) (engine.DriverSource, engine.BrokerSource) {
	at := func(pkg string) []string { return []string{filepath.Join(folder, filepath.Base(pkg))} }
	return Driver(at(DriverPackage), driver.DefaultLimits), engine.BrokerSource{Real: at(BrokerPackage), Virtual: at(TestBrokerPackage)}
}

// Driver is a driver by its command line. Env is added to its environment.
func Driver(args []string, limits driver.Limits, env ...string) engine.DriverSource {
	return engine.DriverSource{
		Name: strings.Join(args, " "), Limits: limits,
		Start: func(ctx context.Context) (*driver.Driver, error) {
			return driver.Start(ctx, driver.Program{Args: args, Env: env}, limits)
		},
	}
}

// Broker is a broker by what a person says of it: addresses (tcp://host:port, ws://host:port, both with a comma between them), or a command
// line for real time and one for virtual time. A command with placeholders ({tcp}, {http}, …) does not take the settings of fitzd.
func Broker(text, virtual string) (engine.BrokerSource, error) {
	if strings.Contains(text, "://") {
		if virtual != "" {
			return engine.BrokerSource{}, errors.New("a broker that runs elsewhere has no virtual time")
		}
		addresses, err := addresses(text)
		return engine.BrokerSource{Addresses: addresses}, err
	}
	realTime, err := Split(text)
	if err != nil {
		return engine.BrokerSource{}, err
	}
	manual, err := Split(virtual)
	return engine.BrokerSource{Real: realTime, Virtual: manual, Foreign: strings.Contains(text, "{")}, err
}

// WithTokens tells where a broker that runs elsewhere has its listeners that want tokens, and by which secret any broker verifies them. Either
// may be empty.
func WithTokens(b *engine.BrokerSource, text, secret string) error {
	b.Secret = secret
	if text == "" {
		return nil
	}
	if b.Addresses == nil {
		return errors.New("addresses of listeners that want tokens belong to a broker that runs elsewhere; a command names {token_tcp} and {token_http}")
	}
	more, err := addresses(text)
	if err != nil {
		return err
	}
	for _, name := range []struct{ plain, token string }{{brokerproc.TCP, brokerproc.TokenTCP}, {brokerproc.HTTP, brokerproc.TokenHTTP}} {
		if address := more[name.plain]; address != "" {
			b.Addresses[name.token] = address
		}
	}
	return nil
}

func addresses(text string) (map[string]string, error) {
	out := map[string]string{}
	for _, one := range strings.Split(text, ",") {
		u, err := url.Parse(strings.TrimSpace(one))
		if err != nil {
			return nil, err
		}
		name := map[string]string{"tcp": brokerproc.TCP, "ws": brokerproc.HTTP}[u.Scheme]
		if _, _, err := net.SplitHostPort(u.Host); name == "" || err != nil {
			return nil, fmt.Errorf("%q is no address: write tcp://host:port or ws://host:port", one)
		}
		out[name] = u.Host
	}
	return out, nil
}

// Split takes a command line apart at spaces. Single and double quotes keep spaces; there are no other rules.
func Split(line string) ([]string, error) {
	var args []string
	var word strings.Builder
	quote, inside := rune(0), false
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '\'' || r == '"':
			quote, inside = r, true
		case r == ' ' || r == '\t' || r == '\n':
			if inside {
				args = append(args, word.String())
			}
			word.Reset()
			inside = false
		default:
			word.WriteRune(r)
			inside = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c in %q is not closed", quote, line)
	}
	if inside {
		args = append(args, word.String())
	}
	return args, nil
}
