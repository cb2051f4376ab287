package wiretest

import (
	"bytes"
	"encoding/hex"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// messagesDoc is the document whose examples are tested; another one when the tests run over another tree.
var messagesDoc = flag.String("messages", "../../../generated/docs/messages.md", "document with examples")

// documented is one example of messages.md.
type documented struct {
	value []byte
	names []string // of its stretches, in order
}

// examples reads the examples of messages.md by the name of their layout.
func examples(t *testing.T) map[string]documented {
	t.Helper()
	text, err := os.ReadFile(*messagesDoc)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]documented{}
	name, inside := "", false
	for line := range strings.SplitSeq(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, "### `"):
			name, _, _ = strings.Cut(strings.TrimPrefix(line, "### `"), "`")
		case strings.HasPrefix(line, "**Success**"):
			name += ".reply"
		case line == "```text":
			inside = true
		case line == "```":
			inside = false
		case inside:
			raw, rest, _ := strings.Cut(line, "  ")
			b, err := hex.DecodeString(strings.ReplaceAll(raw, " ", ""))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			field, _, _ := strings.Cut(rest, ": ")
			d := out[name]
			out[name] = documented{append(d.value, b...), append(d.names, field)}
		}
	}
	return out
}

// The examples of the documents are what the codec makes of them, and their stretches are those of the annotator.
func TestDocumentedExamples(t *testing.T) {
	docs := examples(t)
	seen := 0
	for _, m := range all() {
		d, ok := docs[m.Layout.Name]
		if !ok {
			if m.MinSize > 0 {
				t.Errorf("%s has no example", m.Name)
			}
			continue
		}
		seen++
		again, err := roundTrip(m, d.value)
		if err != nil || !bytes.Equal(again, d.value) {
			t.Errorf("%s: %x became %x: %v", m.Name, d.value, again, err)
		}
		spans, _ := codec.Annotate(m.Layout, d.value)
		var names []string
		for _, s := range spans {
			names = append(names, s.Name)
		}
		if strings.Join(names, ", ") != strings.Join(d.names, ", ") {
			t.Errorf("%s:\ndocuments %v\nannotator %v", m.Name, d.names, names)
		}
	}
	if seen != len(docs) || seen < len(wire.Messages) {
		t.Errorf("%d of %d examples belong to a layout", seen, len(docs))
	}
}
