// Package reload keeps what is made of files in step with the files: certificates, key sets, secrets. The files are looked at when
// their value is used, at most once per interval, so that nothing runs while nobody asks. A content that does not parse, or a file
// that is missing, leaves the previous value in service.
package reload

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/metrics"
)

// Kinds of files, as they appear in logs and metrics.
const (
	KindCertificate = "certificate"
	KindClientCA    = "client_ca"
	KindJWKS        = "jwks"
	KindHMACSecret  = "hmac_secret"
	KindAdminToken  = "admin_token"
)

// Kinds are all of them.
var Kinds = []string{KindCertificate, KindClientCA, KindJWKS, KindHMACSecret, KindAdminToken}

// Options are what a Source needs. Clock, Every and Kind are required.
type Options struct {
	Clock clock.Clock
	// Every is the shortest time between two looks at the files.
	Every time.Duration
	Log   *slog.Logger
	// Kind is one of the constants of this package.
	Kind string
	// Failed and Loaded, when set, are called for each change that was not taken and each that was, the one of Open included. They may be
	// called from any goroutine that calls Get, one at a time.
	Failed func(kind string)
	Loaded func(kind string)
}

// Counted returns o with Failed and Loaded that count in m.
func (o Options) Counted(m *metrics.Reload) Options {
	o.Failed = func(kind string) { m.FailuresTotal.WithLabelValues(kind).Inc() }
	o.Loaded = func(kind string) {
		m.LastSuccessTimestampSeconds.WithLabelValues(kind).Set(float64(o.Clock.Wall().UnixMilli()) / 1000)
	}
	return o
}

// Source is a value that is parsed from the content of files. It is safe for concurrent use.
type Source[T any] struct {
	options Options
	parse   func(content [][]byte) (T, error)
	most    int64
	paths   []string

	value   atomic.Pointer[T]
	checked atomic.Int64 // clock.Instant of the last look

	mu     sync.Mutex // held while the files are looked at
	seen   []sight    // of each path, at the last attempt to load
	unread string     // why a file could not be read at that attempt; empty when all were
}

// sight is what tells one state of a file from another without reading it.
type sight struct {
	info os.FileInfo
	err  string // why there is no info
}

func (s sight) same(o sight) bool {
	if s.info == nil || o.info == nil {
		return s.info == nil && o.info == nil && s.err == o.err
	}
	return s.info.Size() == o.info.Size() && s.info.ModTime().Equal(o.info.ModTime()) && os.SameFile(s.info, o.info)
}

// Open reads all files, each of at most that many bytes, and parses them. Parse gets the contents in the order of the paths and must
// not put any of it into its error, which is logged. The error names the file when one cannot be read.
func Open[T any](o Options, parse func(content [][]byte) (T, error), most int64, paths ...string) (*Source[T], error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source[T]{options: o, parse: parse, most: most, paths: paths, seen: make([]sight, len(paths))}
	for i, path := range paths {
		s.seen[i] = look(path)
	}
	s.checked.Store(int64(o.Clock.Now()))
	if err := s.load(); err != nil {
		return nil, err
	}
	return s, nil
}

// Get returns the newest value that parsed. It never fails and does not wait for another goroutine that reads the files.
func (s *Source[T]) Get() T {
	now := s.options.Clock.Now()
	if now.Sub(clock.Instant(s.checked.Load())) >= s.options.Every && s.mu.TryLock() {
		s.check()
		s.checked.Store(int64(now))
		s.mu.Unlock()
	}
	return *s.value.Load()
}

// check loads the files again when one of them is not what it was. They are loaded together, because a certificate and its key
// belong together. What was read counts as dealt with, also when it was not taken: one change is reported once. What could not be read is
// tried again, because what was in the way, such as permissions or a lack of descriptors, leaves no trace in the file.
func (s *Source[T]) check() {
	changed := false
	for i, path := range s.paths {
		// The look comes before the read: a change in between is seen the next time.
		now := look(path)
		changed = changed || !now.same(s.seen[i])
		s.seen[i] = now
	}
	before := s.unread
	if !changed && before == "" {
		return
	}
	if err := s.load(); err != nil {
		if !changed && s.unread == before {
			return // reported already
		}
		s.options.Log.Warn("file not reloaded, the previous content stays in service", "kind", s.options.Kind, "error", err)
		report(s.options.Failed, s.options.Kind)
		return
	}
	s.options.Log.Info("file reloaded", "kind", s.options.Kind)
}

func (s *Source[T]) load() error {
	s.unread = ""
	content := make([][]byte, len(s.paths))
	for i, path := range s.paths {
		var err error
		if content[i], err = read(path, s.most); err != nil {
			s.unread = err.Error()
			return err
		}
	}
	value, err := s.parse(content)
	if err != nil {
		return err
	}
	s.value.Store(&value)
	report(s.options.Loaded, s.options.Kind)
	return nil
}

func report(f func(string), kind string) {
	if f != nil {
		f(kind)
	}
}

func look(path string) sight {
	info, err := os.Stat(path)
	if err != nil {
		return sight{err: err.Error()}
	}
	return sight{info: info}
}

// read returns the content of a file of at most that many bytes. Something that is not a file is not opened: a pipe would block.
func read(path string, most int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	content, err := io.ReadAll(io.LimitReader(file, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(content)) > most {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, most)
	}
	return content, nil
}
