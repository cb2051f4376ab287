package engine

import (
	osexec "os/exec"
	"strings"
	"testing"
)

// A process or a goroutine that a run leaves is told; one that was there before is not.
func TestWatchLeaks(t *testing.T) {
	before := osexec.Command("sleep", "60")
	after := osexec.Command("sleep", "60")
	stop, gone := make(chan struct{}), make(chan struct{})
	if err := before.Start(); err != nil {
		t.Fatal(err)
	}
	leaks := watchLeaks()
	if err := after.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(gone)
		<-stop
	}()
	left := strings.Join(leaks(), "\n")
	close(stop)
	<-gone
	for _, cmd := range []*osexec.Cmd{before, after} {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	}
	if strings.Count(left, "(sleep)")+strings.Count(left, " sleep") != 1 || !strings.Contains(left, "TestWatchLeaks.func1") {
		t.Error(left)
	}
	if left := watchLeaks()(); len(left) > 0 {
		t.Error(left)
	}
}
