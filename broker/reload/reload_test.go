package reload_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/reload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const every = 10 * time.Second

// world is a source over files of a test. Its value is the joined content, each file without white space around it.
type world struct {
	t      *testing.T
	clock  *clock.Manual
	log    bytes.Buffer
	source *reload.Source[string]
	paths  []string
	reads  int
	stamp  time.Time // of the newest content
	failed int
	loaded int
}

func open(t *testing.T, contents ...string) *world {
	w := &world{t: t, clock: clock.NewManual(time.Unix(0, 0)), stamp: time.Unix(1_000_000, 0)}
	dir := t.TempDir()
	for i, content := range contents {
		w.paths = append(w.paths, filepath.Join(dir, string(rune('a'+i))))
		w.write(i, content)
	}
	source, err := reload.Open(w.options(), w.parse, 16, w.paths...)
	if err != nil {
		t.Fatal(err)
	}
	w.source = source
	return w
}

func (w *world) options() reload.Options {
	return reload.Options{
		Clock: w.clock, Every: every, Kind: reload.KindCertificate, Log: slog.New(slog.NewTextHandler(&w.log, nil)),
		Failed: func(string) { w.failed++ }, Loaded: func(string) { w.loaded++ },
	}
}

func (w *world) parse(content [][]byte) (string, error) {
	w.reads++
	text := strings.TrimSpace(string(bytes.Join(content, []byte("+"))))
	if strings.Contains(text, "bad") {
		return "", errors.New("does not parse")
	}
	return text, nil
}

// write gives a file a content, and a modification time of its own: file systems do not tell two writes apart that follow each other
// closely.
func (w *world) write(i int, content string) {
	w.t.Helper()
	if err := os.WriteFile(w.paths[i], []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.stamp = w.stamp.Add(time.Second)
	if err := os.Chtimes(w.paths[i], w.stamp, w.stamp); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) want(value string) {
	w.t.Helper()
	if got := w.source.Get(); got != value {
		w.t.Fatalf("value %q, want %q", got, value)
	}
}

// later lets the files be looked at again.
func (w *world) later() { w.clock.Advance(every) }

func TestFilesAreLookedAtOncePerInterval(t *testing.T) {
	w := open(t, "one")
	w.want("one")
	w.write(0, "two")
	w.want("one")
	w.clock.Advance(every - 1)
	w.want("one")
	w.clock.Advance(1)
	w.want("two")
	w.write(0, "three")
	w.want("two")
	w.later()
	w.want("three")
	if w.loaded != 3 || w.failed != 0 {
		t.Errorf("%d loads and %d failures were reported", w.loaded, w.failed)
	}
}

func TestUnchangedFilesAreNotReadAgain(t *testing.T) {
	w := open(t, "one", "two")
	for range 5 {
		w.later()
		w.want("one+two")
	}
	if w.reads != 1 {
		t.Errorf("files were read %d times", w.reads)
	}
}

// A certificate that is new belongs to a key that is new: until both are there, neither is taken.
func TestFilesAreTakenTogether(t *testing.T) {
	w := open(t, "c1", "k1")
	w.write(0, "bad")
	w.later()
	w.want("c1+k1")
	w.write(1, "k2")
	w.later()
	w.want("c1+k1")
	w.write(0, "c2")
	w.later()
	w.want("c2+k2")
	if w.failed != 2 || w.loaded != 2 {
		t.Errorf("%d failures and %d loads were reported", w.failed, w.loaded)
	}
}

func TestOneWarningPerChange(t *testing.T) {
	w := open(t, "one")
	w.write(0, "bad")
	for range 5 {
		w.later()
		w.want("one")
	}
	if err := os.Remove(w.paths[0]); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		w.later()
		w.want("one")
	}
	if warnings := strings.Count(w.log.String(), "level=WARN"); warnings != 2 || w.failed != 2 {
		t.Errorf("%d warnings and %d failures of two changes:\n%s", warnings, w.failed, w.log.String())
	}
	w.write(0, "two")
	w.later()
	w.want("two")
}

// Secrets of container platforms are links that are pointed at another directory; size and time may be equal.
func TestAnotherFileOfTheSameSizeAndTimeIsSeen(t *testing.T) {
	w := open(t, "one")
	other := w.paths[0] + ".new"
	if err := os.WriteFile(other, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(other, w.stamp, w.stamp); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, w.paths[0]); err != nil {
		t.Fatal(err)
	}
	w.later()
	w.want("two")
}

func TestBoundOfAFile(t *testing.T) {
	w := open(t, "0123456789abcdef")
	w.write(0, "0123456789abcdefg")
	w.later()
	w.want("0123456789abcdef")
	if w.failed != 1 {
		t.Errorf("%d failures of a file that is too large", w.failed)
	}
	if _, err := reload.Open(w.options(), w.parse, 16, w.paths...); err == nil || !strings.Contains(err.Error(), w.paths[0]) {
		t.Errorf("a file that is too large at the start: %v", err)
	}
}

func TestOpenFails(t *testing.T) {
	w := open(t, "one")
	for name, path := range map[string]string{"missing": w.paths[0] + ".missing", "directory": filepath.Dir(w.paths[0])} {
		if _, err := reload.Open(w.options(), w.parse, 16, path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v does not name the file", name, err)
		}
	}
	w.write(0, "bad")
	if _, err := reload.Open(w.options(), w.parse, 16, w.paths...); err == nil {
		t.Error("a content that does not parse opened")
	}
}

func TestConcurrentUse(t *testing.T) {
	w := open(t, "one")
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 200 {
				w.source.Get()
				w.clock.Advance(time.Second)
			}
		})
	}
	group.Wait()
	w.write(0, "two")
	w.later()
	w.want("two")
}
