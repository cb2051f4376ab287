//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// SIGHUP asks for what happens anyway, and does not end the broker.
func TestHangup(t *testing.T) {
	addresses := filepath.Join(t.TempDir(), "addresses.json")
	var stderr output
	fitzd := exec.Command(os.Args[0], "--tcp", "127.0.0.1:0", "--http", "off", "--admin", "off", "--addresses-file", addresses)
	fitzd.Env = append(os.Environ(), asProgram+"=1")
	fitzd.Stderr = &stderr
	if err := fitzd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = fitzd.Process.Kill() }() // fails when it has ended
	published(t, addresses, &stderr)
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGTERM} {
		if err := fitzd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	if err := fitzd.Wait(); err != nil || !strings.Contains(stderr.String(), "msg=stopped") {
		t.Errorf("%v: %s", err, stderr.String())
	}
}
