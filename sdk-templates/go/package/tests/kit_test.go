package tests

import (
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/codec"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// W-14: a client takes transport messages of several records, up to sdk_frame_recv_max and so more than the 65,551 bytes that every client takes.
func TestLargeMessages(t *testing.T) {
	for _, size := range []int{65_551, bounds.SDKFrameRecvMax} {
		synctest.Test(t, func(t *testing.T) {
			g := &grantAll{}
			s := fitztest.NewPeer(t, fitztest.Script{Answer: func(p *fitztest.Session, f fitztest.Frame) {
				if f.Type != wire.TypeLeaseQuery {
					g.handle(p, f)
					return
				}
				label := codec.AppendRecord(nil, uint16(wire.TypeCorrelated), codec.AppendU64(nil, f.Label))
				reply, err := (&wire.LeaseQueryReply{Held: true, OwnerID: "last"}).AppendValue(nil)
				if err != nil {
					t.Error(err)
				}
				end := codec.AppendRecord(append(notified(t, 7, "lease://r/a/second"), label...), uint16(f.Type), reply)
				message := notified(t, 7, "lease://r/a/first")
				for rest := size - len(end) - len(message); rest > 0; rest = size - len(end) - len(message) {
					message = append(message, unknown(min(rest, 1<<15))...)
				}
				if message = append(message, end...); len(message) != size {
					t.Errorf("the test sends %d bytes, want %d", len(message), size)
				}
				p.SendMessage(message)
			}})
			c := connect(t, s)
			sub, err := c.Lease().Subscribe(t.Context(), "lease://r/a/*", nil)
			if err != nil {
				t.Fatal(err)
			}
			if info, err := c.Lease().Query(t.Context(), route); err != nil || info.OwnerID != "last" {
				t.Errorf("%+v, %v", info, err)
			}
			for _, want := range []string{route, "lease://r/a/first", "lease://r/a/second"} {
				if change, err := sub.Next(t.Context()); err != nil || change.Route != want {
					t.Errorf("%+v, %v, want %s", change, err, want)
				}
			}
			if st := c.Status(); st.Sessions != 1 {
				t.Errorf("%+v", st)
			}
		})
	}
}

// notified is the record of a notification.
func notified(t *testing.T, id uint64, route string) []byte {
	t.Helper()
	value, err := (&wire.LeaseNotify{SubscriptionID: id, Route: route}).AppendValue(nil)
	if err != nil {
		t.Error(err)
	}
	return codec.AppendRecord(nil, uint16(wire.TypeLeaseNotify), value)
}

// unknown is a record of size bytes, at least a header, of a type that nobody knows: clients pass over it (W-05).
func unknown(size int) []byte {
	const (
		typ    = 0xFFFF
		header = 5
	)
	return codec.AppendRecord(nil, typ, make([]byte, max(size-header, 0)))
}

// The tests of the SDK use what every user has: the SDK, its packages and the public test kit.
func TestOnlyThePublicKit(t *testing.T) {
	allowed := []string{"github.com/fitzwire/fitz/fitztest", "github.com/fitzwire/fitz/generated/go/", "go.uber.org/goleak", "pgregory.net/rapid"}
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, spec := range parsed.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			first, _, _ := strings.Cut(path, "/")
			ok := !strings.Contains(first, ".") // the standard library
			for _, prefix := range allowed {
				ok = ok || strings.HasPrefix(path, prefix)
			}
			if !ok {
				t.Errorf("%s imports %s", file.Name(), path)
			}
		}
	}
}
