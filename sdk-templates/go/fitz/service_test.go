package fitz_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// Wire.md section 5: SESSION_METADATA is sent once in every session whose broker announces bit 1, and in no other.
func TestServiceNameIsTold(t *testing.T) {
	for _, c := range []struct {
		name  string
		start []fitztest.Option
		with  []fitz.Option
		want  int
	}{
		{"told", nil, []fitz.Option{fitz.WithServiceName("  renderer ")}, 2},
		{"no name", nil, nil, 0},
		{"no capability", []fitztest.Option{fitztest.WithoutHello()}, []fitz.Option{fitz.WithServiceName("renderer")}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := fitztest.Start(t, c.start...)
			client := b.Connect(c.with...)
			for _, route := range []string{"lease://acme/renderers/a", "lease://acme/renderers/b"} {
				if _, err := client.Lease().Query(t.Context(), route); err != nil { // everything before it has passed the network
					t.Fatal(err)
				}
				if route == "lease://acme/renderers/a" {
					b.Network().Cut()
					for s := range client.StatusChanges(t.Context()) {
						if s.State == fitz.ConnReady && s.Sessions == 2 {
							break
						}
					}
				}
			}
			if got := b.Network().Passed(fitztest.ToBroker, wire.TypeSessionMetadata); got != c.want {
				t.Errorf("%s: %d messages", c.name, got)
			}
		})
	}
}

func TestServiceNameIsChecked(t *testing.T) {
	for _, name := range []string{"", "  ", "a\nb", "\xff", strings.Repeat("x", bounds.ServiceNameMax+1)} {
		if _, err := fitz.Connect(t.Context(), "", fitz.WithServiceName(name)); !errors.Is(err, fitz.ErrConfigInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Handles say in logs what they are about (and never a token).
func TestHandlesInLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fitztest.Start(t).Connect()
		lease, err := c.Lease().Acquire(t.Context(), statsRoute, time.Minute, &fitz.AcquireOptions{OwnerID: "w"})
		if err != nil {
			t.Fatal(err)
		}
		sub, err := c.Lease().Subscribe(t.Context(), statsView, nil)
		if err != nil {
			t.Fatal(err)
		}
		observer, err := c.Lease().Observe(statsView, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := observer.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		log.Info("x", "lease", lease, "sub", sub, "observer", observer)
		want := "level=INFO msg=x lease.route=" + statsRoute + " lease.owner=w sub.selector=" + statsView + " observer.selector=" + statsView + " observer.state=ready\n"
		if out.String() != want || sub.Selector() != statsView || observer.Selector().String() != statsView {
			t.Errorf("%s, want %s", out.String(), want)
		}
	})
}
