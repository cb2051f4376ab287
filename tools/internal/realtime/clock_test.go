//go:build linux

package realtime

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/boot"
)

// jumping is the clock of the machine with a time of day, and time in which no timer ran, that a test sets.
type jumping struct {
	wall, suspended atomic.Int64
}

func (c *jumping) Now() time.Duration { return boot.System() + time.Duration(c.suspended.Load()) }
func (c *jumping) AfterFunc(d time.Duration, f func()) fitz.Timer {
	return time.AfterFunc(d, f)
}
func (c *jumping) Wall() time.Time { return time.Now().Add(time.Duration(c.wall.Load())) }

// L-103: steps of the time of day change nothing, in either direction: the lease goes on, is renewed, and its end is still told on the wall
// clock as that is now. Time in which the machine was suspended counts: the lease is lost at the next look, although no timer came.
func TestClockJump(t *testing.T) {
	t.Parallel()
	at := startFitzd(t)
	var clock jumping
	renewed := make(chan struct{}, 100)
	client, err := fitz.Connect(t.Context(), at.tcp(), fitz.WithClock(&clock), fitz.WithHooks(fitz.Hooks{Event: func(e fitz.Event) {
		if e.Name == fitz.EventLeaseRenewed {
			renewed <- struct{}{}
		}
	}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	lease, err := client.Lease().Acquire(t.Context(), route, ttl, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := joinLine(t, at.tcp(), route)
	for _, step := range []time.Duration{24 * time.Hour, -24 * time.Hour} {
		clock.wall.Store(int64(step))
		ctx, cancel := context.WithTimeout(t.Context(), soon)
		select {
		case <-renewed:
		case <-lease.Done():
		case <-ctx.Done():
			t.Errorf("not renewed after a step of %v", step)
		}
		cancel()
		if err := lease.Err(); err != nil {
			t.Fatalf("after a step of %v: %v", step, err)
		}
		if left := lease.Deadline().Sub(clock.Wall()); left <= 0 || left > ttl {
			t.Errorf("after a step of %v the lease ends in %v", step, left)
		}
	}
	clock.suspended.Store(int64(ttl))
	at0 := boot.System()
	var lost *fitz.LeaseLost
	if err := lease.Err(); !errors.As(err, &lost) || lost.Reason != fitz.LeaseLostExpired {
		t.Errorf("after a suspension: %v", err)
	}
	if granted := r.grant(); granted <= at0 {
		t.Errorf("granted %v before the lease was lost", at0-granted)
	}
}

// L-103: by construction nothing that the SDK decides about leases comes from the time of day: outside of the clock, which can be replaced, and of
// what is shown to people, no file of it calls package time for more than units.
func TestNoTimeOfDay(t *testing.T) {
	sdk := filepath.Join("..", "..", "..", "generated", "go", "fitz")
	may := map[string]bool{
		"internal/rt/port/system.go": true, // the clock of the machine
		"options.go":                 true, // the time of day that a WallClock replaces
	}
	forbidden := []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Sleep"}
	files, err := filepath.Glob(filepath.Join(sdk, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(sdk, "internal", "rt", "*", "*.go"))
	if err != nil || len(files) == 0 || len(more) == 0 {
		t.Fatalf("%d and %d files: %v", len(files), len(more), err)
	}
	found := false
	for _, name := range append(files, more...) {
		short, err := filepath.Rel(sdk, name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains(forbidden, s.Sel.Name) {
				return true
			}
			if p, ok := s.X.(*ast.Ident); !ok || p.Name != "time" {
				return true
			}
			found = true
			if !may[filepath.ToSlash(short)] {
				t.Errorf("%s uses time.%s", short, s.Sel.Name)
			}
			return true
		})
	}
	if !found {
		t.Error("not even the clock of the machine was found")
	}
}
