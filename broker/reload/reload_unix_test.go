//go:build unix

package reload_test

import (
	"strings"
	"syscall"
	"testing"
)

// A file that cannot be read for a while, here for want of descriptors, is tried again although nothing about the file changes; that it
// cannot be read is reported once.
func TestUnreadableFileIsTriedAgain(t *testing.T) {
	w := open(t, "one")
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	w.write(0, "two")
	none := limit
	none.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) }() // again, when the test ends early
	for range 3 {
		w.later()
		w.want("one")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	w.later()
	w.want("two")
	if warnings := strings.Count(w.log.String(), "level=WARN"); warnings != 1 || w.failed != 1 || w.loaded != 2 {
		t.Errorf("%d warnings, %d failures and %d loads:\n%s", warnings, w.failed, w.loaded, w.log.String())
	}
	w.later()
	w.want("two")
	if w.reads != 2 {
		t.Errorf("files were read %d times", w.reads)
	}
}
