package kit

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/fitzwire/fitz/conformance/brokerproc"
)

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"":                          nil,
		"  a  b\tc\n":               {"a", "b", "c"},
		`python 'my driver.py' "x"`: {"python", "my driver.py", "x"},
		`a'b c'd ''`:                {"ab cd", ""},
		`"it's"`:                    {"it's"},
	} {
		got, err := Split(line)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q %v", line, got, err)
		}
	}
	if _, err := Split(`a 'b`); err == nil {
		t.Error("an open quote was taken")
	}
}

// Words without spaces and quotes come back as they were joined.
func TestSplitProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.StringMatching(`[^\s'"]+`)).Draw(t, "words")
		line := ""
		for _, w := range words {
			line += " '" + w + "' "
		}
		got, err := Split(line)
		if err != nil || !slices.Equal(got, words) && len(words) > 0 {
			t.Fatalf("%q: %q %v", line, got, err)
		}
	})
}

func TestBroker(t *testing.T) {
	b, err := Broker("tcp://127.0.0.1:1, ws://[::1]:2", "")
	if err != nil || b.Addresses[brokerproc.TCP] != "127.0.0.1:1" || b.Addresses[brokerproc.HTTP] != "[::1]:2" || b.Real != nil {
		t.Errorf("%+v %v", b, err)
	}
	b, err = Broker("other --listen {tcp}", "")
	if err != nil || !b.Foreign || len(b.Real) != 3 || len(b.Virtual) != 0 || b.Addresses != nil {
		t.Errorf("%+v %v", b, err)
	}
	b, err = Broker("fitzd", "fitzd-test --seed 1")
	if err != nil || b.Foreign || len(b.Virtual) != 3 {
		t.Errorf("%+v %v", b, err)
	}
	for _, c := range [][2]string{{"udp://a:1", ""}, {"tcp://nohost", ""}, {"tcp://a:1", "fitzd-test"}, {"fitzd '", ""}, {"fitzd", "'"}} {
		if b, err := Broker(c[0], c[1]); err == nil {
			t.Errorf("%q was taken: %+v", c, b)
		}
	}
}

func TestWithTokens(t *testing.T) {
	b, err := Broker("tcp://127.0.0.1:1,ws://127.0.0.1:2", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := WithTokens(&b, "tcp://127.0.0.1:3", "secret"); err != nil {
		t.Fatal(err)
	}
	if b.Addresses[brokerproc.TokenTCP] != "127.0.0.1:3" || b.Addresses[brokerproc.TokenHTTP] != "" || b.Addresses[brokerproc.TCP] != "127.0.0.1:1" || b.Secret != "secret" {
		t.Errorf("%+v", b)
	}
	if err := WithTokens(&b, "udp://127.0.0.1:3", ""); err == nil {
		t.Error("an address that is none was taken")
	}
	command, err := Broker("other {tcp} {token_tcp}", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := WithTokens(&command, "", ""); err != nil {
		t.Error(err)
	}
	if err := WithTokens(&command, "tcp://127.0.0.1:3", ""); err == nil {
		t.Error("a command was given addresses")
	}
}

func TestFindRoot(t *testing.T) {
	want, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := FindRoot("."); err != nil || got != want {
		t.Errorf("%s %v", got, err)
	}
	if got, err := FindRoot(t.TempDir()); err == nil {
		t.Errorf("found %s", got)
	}
}

// A scenario file with mistakes is left out, told with its path in the tree, and stops nothing else.
func TestOpenTellsMistakes(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"spec", "generated"} {
		from, err := filepath.Abs(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(root, "conformance", "scenarios")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	good := "id: A-1\ntitle: t\nproves: [L-20]\nsubject: broker\ntime: real\nsteps: [{peer: p1}]\n"
	for name, text := range map[string]string{"A-1.yaml": good, "A-2.yaml": good} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := Open(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Scenarios) != 1 || len(tree.Mistakes) != 1 || tree.Mistakes[0].Pos.File != "conformance/scenarios/A-2.yaml" {
		t.Errorf("%v %v", tree.Scenarios, tree.Mistakes)
	}
	if len(tree.Vectors) == 0 {
		t.Error("there are no vectors")
	}
}
