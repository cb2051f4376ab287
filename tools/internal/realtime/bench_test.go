//go:build linux

package realtime

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// BenchmarkIdleProcess is what an idle client process costs in a second, an operation: how often the kernel wakes one of its threads, and its
// processor time. Package fitztest counts the same by timers and frames on a virtual clock, and asserts it; this sees the Go runtime as well.
func BenchmarkIdleProcess(b *testing.B) {
	const idleTTL = 30 * time.Second
	for _, c := range []struct {
		name string
		what order
	}{
		{"client", order{idle: true}},
		{"client+observer+lease", order{watch: true}},
	} {
		b.Run(c.name, func(b *testing.B) {
			at := startFitzd(b)
			c.what.url, c.what.route, c.what.ttl = at.tcp(), route, idleTTL
			w := startWorker(b, c.what)
			w.await(wordReady, 1)
			switches, busy := costs(b, w.cmd.Process.Pid)
			for b.Loop() {
				time.Sleep(time.Second) // the subject is what happens meanwhile
			}
			switchesLater, busyLater := costs(b, w.cmd.Process.Pid)
			seconds := b.Elapsed().Seconds()
			b.ReportMetric(float64(switchesLater-switches)/seconds, "wakeups/s")
			b.ReportMetric(float64(busyLater-busy)/float64(time.Microsecond)/seconds, "cpu-us/s")
		})
	}
}

// costs returns how often the threads of a process have waited, and how long they have run.
func costs(b *testing.B, pid int) (switches int, busy time.Duration) {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
	if err != nil || len(threads) == 0 {
		b.Fatalf("threads of %d: %v", pid, err)
	}
	for _, thread := range threads {
		status, err := os.ReadFile(filepath.Join(thread, "status"))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(status)) {
			if number, found := strings.CutPrefix(line, "voluntary_ctxt_switches:"); found {
				n, err := strconv.Atoi(strings.TrimSpace(number))
				if err != nil {
					b.Fatal(err)
				}
				switches += n
			}
		}
		schedule, err := os.ReadFile(filepath.Join(thread, "schedstat")) // nanoseconds on a processor, waiting for one, slices
		if err != nil {
			b.Fatal(err)
		}
		ran, err := strconv.ParseInt(strings.Fields(string(schedule))[0], 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		busy += time.Duration(ran)
	}
	return switches, busy
}
