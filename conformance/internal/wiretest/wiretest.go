// Package wiretest holds what the tests of the wire packages share: the specification, a running broker, and waits with an end. Only tests import it.
package wiretest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fitzwire/fitz/broker"
	"github.com/fitzwire/fitz/broker/config"
	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/generated/go/settings"
)

var spec = sync.OnceValues(func() (*oracle.Spec, error) { return oracle.Load(os.DirFS("../../spec")) })

// Spec returns the specification; the test runs two folders below the root.
func Spec(tb testing.TB) *oracle.Spec {
	tb.Helper()
	s, err := spec()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// patience ends a wait that would hang, so that a broken test fails.
const patience = 20 * time.Second

// Context returns a context that ends with the test, or before a wait would hang.
func Context(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	tb.Cleanup(cancel)
	return ctx
}

// Broker runs a broker on loopback ports until the test ends, and returns its address by transport.
func Broker(tb testing.TB, args ...string) func(transport string) string {
	tb.Helper()
	args = append([]string{"--tcp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "off"}, args...)
	c, _, err := config.Load(args, func(string) string { return "" }, io.Discard)
	if err != nil {
		tb.Fatal(err)
	}
	b, err := broker.Start(context.Background(), c)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return func(transport string) string {
		if stream.Transport(transport) == stream.WebSocket {
			return b.Addresses()[settings.ListenerHTTP.Name]
		}
		return b.Addresses()[settings.ListenerTCP.Name]
	}
}

// Transports runs a test over each transport.
func Transports(t *testing.T, f func(t *testing.T, transport string)) {
	for _, transport := range stream.Transports {
		t.Run(string(transport), func(t *testing.T) { f(t, string(transport)) })
	}
}

// Independent fails when a package of the module, or what it imports, is made by the generator or part of what the suite judges.
func Independent(t *testing.T, pkg string) {
	t.Helper()
	out, err := exec.CommandContext(Context(t), "go", "list", "-deps", pkg).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const module = "github.com/fitzwire/fitz/"
	judged := []string{"generated/", "codegen/", "broker", "sdk-templates/", "fitztest"}
	for dep := range strings.FieldsSeq(string(out)) {
		inside, ours := strings.CutPrefix(dep, module)
		if ours && slices.ContainsFunc(judged, func(part string) bool { return strings.HasPrefix(inside, part) }) {
			t.Errorf("%s imports %s", pkg, dep)
		}
	}
}
