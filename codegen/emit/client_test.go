package emit

import (
	"slices"
	"strings"
	"testing"

	"github.com/fitzwire/fitz/codegen/load"
	"github.com/fitzwire/fitz/codegen/model"
)

// clientSpec is the specification of the project.
func clientSpec(t *testing.T) *model.Spec {
	t.Helper()
	spec, found, err := load.Load("../../spec/fitz.yaml")
	if err != nil || len(found) > 0 {
		t.Fatalf("%v, %v", found, err)
	}
	return spec
}

// Every operation that is answered has a method, every push a callback, every deferred operation its second form.
func TestClientHasEveryOperation(t *testing.T) {
	spec := clientSpec(t)
	files, err := clientFiles(spec)
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, f := range files {
		code.Write(f.Content)
	}
	names := newNamer(spec)
	for _, d := range spec.Domains {
		for _, op := range d.Operations {
			name := names.in(d, op.Name)
			if want := "func (c *Client) " + name + "("; !op.NoReply && strings.Count(code.String(), want) != 1 {
				t.Errorf("no method %s", name)
			}
			if want := "func (c *Client) " + name + "Waiting("; (op.Deferred != nil) != strings.Contains(code.String(), want) {
				t.Errorf("deferred operation %s", name)
			}
		}
		for _, m := range d.Messages {
			if want := "\tOn" + names.in(d, m.Name) + " func("; m.Class == "push" && !strings.Contains(code.String(), want) {
				t.Errorf("no callback for %s", m.Name)
			}
		}
	}
}

// A specification that lacks what a session needs is refused, and says what is missing.
func TestClientNeedsItsControlMessages(t *testing.T) {
	for _, name := range []string{"connect", "server_hello", "client_hello", "correlate", "ping", "cancelled"} {
		spec := clientSpec(t)
		session := spec.Domain("session")
		session.Messages = slices.DeleteFunc(session.Messages, func(m *model.Message) bool { return m.Name == name })
		if _, err := clientFiles(spec); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// Which field is the waiting time of a deferred operation must be certain.
func TestClientNeedsOneWaitingTime(t *testing.T) {
	for change, apply := range map[string]func(*model.Field){
		"none": func(f *model.Field) { f.Unit = "" },
		"two":  func(f *model.Field) { f.Presence.Kind = model.Tail },
	} {
		spec := clientSpec(t)
		for _, op := range spec.Domain("lease").Operations {
			for _, f := range op.Request {
				if op.Deferred != nil && (change == "none" && f.Name == "wait" || change == "two" && f.Name == "ttl") {
					apply(f)
				}
			}
		}
		if _, err := clientFiles(spec); err == nil || !strings.Contains(err.Error(), "waiting time") {
			t.Errorf("%s: %v", change, err)
		}
	}
}

func TestClientNeedsItsConditions(t *testing.T) {
	spec := clientSpec(t)
	spec.Local = slices.DeleteFunc(spec.Local, func(l *model.LocalError) bool { return l.Name == "conn.lost" })
	if _, err := clientFiles(spec); err == nil || !strings.Contains(err.Error(), "conn.lost") {
		t.Errorf("%v", err)
	}
}
