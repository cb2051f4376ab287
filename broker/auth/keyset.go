package auth

import (
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/broker/reload"
	"github.com/fitzwire/fitz/generated/go/settings"
)

const (
	// fileCheck is how often files are looked at.
	fileCheck = settings.FileCheckMs * time.Millisecond
	// refreshPause is the shortest time between two fetches that unknown key ids start.
	refreshPause = settings.KeySetUnknownKeyPauseMs * time.Millisecond
	// refreshEvery is how often a key set is fetched when nobody asks, so that a key that was withdrawn goes out of use.
	refreshEvery = settings.KeySetRefreshMs * time.Millisecond
	// fetchTimeout bounds one fetch, in real time.
	fetchTimeout = settings.KeySetFetchTimeoutMs * time.Millisecond
)

// keySet is the key set of one issuer: of a file, or of a URL.
type keySet struct {
	issuer string
	file   *reload.Source[keys] // nil with a URL
	url    string
	newest atomic.Pointer[keys] // of the URL
	asked  chan struct{}        // an unknown key id was met
}

// openKeySets loads the key set of every issuer, in order, so that the first error is always the same.
func (a *Authority) openKeySets() error {
	a.sets = make(map[string]*keySet, len(a.config.JWKS))
	for _, issuer := range slices.Sorted(maps.Keys(a.config.JWKS)) {
		set, err := a.openKeySet(issuer, a.config.JWKS[issuer])
		if err != nil {
			return fmt.Errorf("jwks of issuer %q: %w", issuer, err)
		}
		a.sets[issuer] = set
	}
	return nil
}

func (a *Authority) openKeySet(issuer, place string) (*keySet, error) {
	set := &keySet{issuer: issuer, asked: make(chan struct{}, 1)}
	var err error
	if !strings.Contains(place, schemeEnd) {
		set.file, err = reload.Open(a.reloading(reload.KindJWKS), func(content [][]byte) (keys, error) {
			found, err := parseKeys(content[0], &a.limits)
			if err != nil {
				err = fmt.Errorf("%s: %w", place, err)
			}
			return found, err
		}, a.limits.JwksResponseBytesMax, place)
		return set, err
	}
	if set.url, err = checkURL(place); err != nil {
		return nil, err
	}
	return set, a.fetch(context.Background(), set)
}

// checkURL accepts https, and http to this machine: keys that somebody on the way can replace are no keys.
func checkURL(place string) (string, error) {
	u, err := url.Parse(place)
	switch {
	case err != nil:
		return "", errors.New("the URL does not parse")
	case u.User != nil:
		return "", errors.New("the URL holds a user")
	case u.Scheme == "https" && u.Host != "", u.Scheme == "http" && isLoopback(u.Hostname()):
		return place, nil
	default:
		return "", errors.New("the URL is neither https nor http to a loopback address")
	}
}

func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// find returns the key that a header asks for. One that is not known is looked for in the background, where it can be.
func (s *keySet) find(header map[string]any) (*rsa.PublicKey, bool) {
	if s.file != nil {
		return s.file.Get().find(header)
	}
	key, ok := s.newest.Load().find(header)
	if !ok {
		select {
		case s.asked <- struct{}{}:
		default: // asked already
		}
	}
	return key, ok
}

// refreshKeySets keeps the key sets of URLs until ctx ends, each in a goroutine of its own: an issuer that does not answer must not hold
// up the others.
func (a *Authority) refreshKeySets(ctx context.Context) error {
	var group sync.WaitGroup
	for _, set := range a.sets {
		if set.file == nil {
			group.Go(func() { a.refresh(ctx, set) })
		}
	}
	<-ctx.Done()
	group.Wait()
	return nil
}

// refresh fetches a key set when an unknown key id was met, at most once per refreshPause, and every refreshEvery. A set that is refused
// leaves the previous one in service.
func (a *Authority) refresh(ctx context.Context, set *keySet) {
	earliest := a.clock.Now()
	due := earliest.Add(refreshEvery)
	for {
		asked := set.asked
		if due <= earliest {
			asked = nil // a fetch is due already, which answers whoever asks
		}
		alarm := a.after(due.Sub(a.clock.Now()))
		select {
		case <-ctx.Done():
		case <-asked:
			due = earliest
		case <-alarm.passed:
		}
		alarm.timer.Stop()
		now := a.clock.Now()
		switch {
		case ctx.Err() != nil:
			return
		case now < due:
			continue
		}
		earliest, due = now.Add(refreshPause), now.Add(refreshEvery)
		drain(set.asked)
		if err := a.fetch(ctx, set); err != nil && ctx.Err() == nil {
			a.log.Warn("key set not refreshed, the previous one stays in service", "issuer", set.issuer, "error", err)
		}
	}
}

// drain forgets key ids that were asked for before a fetch, which answers them.
func drain(asked chan struct{}) {
	select {
	case <-asked:
	default:
	}
}

// alarm is a timer that can be waited for.
type alarm struct {
	timer  clock.Timer
	passed chan struct{}
}

func (a *Authority) after(d time.Duration) alarm {
	passed := make(chan struct{})
	return alarm{a.clock.AfterFunc(d, func() { close(passed) }), passed}
}

// client fetches key sets. It follows no redirect, which could lead to where no operator pointed, and takes nothing compressed, so that
// the bound is one on what is read.
var client = &http.Client{
	Timeout:       fetchTimeout,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, DisableCompression: true},
}

// Results of a refresh, as metrics name them.
const (
	RefreshDone   = "ok"
	RefreshFailed = "failed"
)

// fetch takes the key set of a URL into service.
func (a *Authority) fetch(ctx context.Context, set *keySet) error {
	found, err := a.fetchKeys(ctx, set.url)
	result := RefreshDone
	if err != nil {
		result = RefreshFailed
	} else {
		set.newest.Store(&found)
	}
	a.metrics.JwksRefreshesTotal.WithLabelValues(result).Inc()
	return err
}

func (a *Authority) fetchKeys(ctx context.Context, place string) (keys, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }() // only read
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", place, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, a.limits.JwksResponseBytesMax+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", place, err)
	}
	found, err := parseKeys(text, &a.limits)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", place, err)
	}
	return found, nil
}
