package auth_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fitzwire/fitz/broker/auth"
	"github.com/fitzwire/fitz/broker/clock"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/metrics"
)

// modulus is an odd number of that many bits, which is enough of a key to be judged.
func modulus(bits int) string {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return encodeNumber(n.SetBit(n, 0, 1))
}

// set is a key set with one good key and another one.
func set(t *testing.T, other object) []byte {
	t.Helper()
	return keySet(t, jwk(&firstKey().PublicKey, "first", nil), other)
}

func TestKeySets(t *testing.T) {
	first, second := &firstKey().PublicKey, &secondKey().PublicKey
	limits := bounds.Default()
	many := func(n int) []byte {
		all := make([]object, n)
		for i := range all {
			all[i] = jwk(first, fmt.Sprint(i), nil)
		}
		all[0]["kid"] = "first"
		return keySet(t, all...)
	}
	for _, test := range []struct {
		name  string
		set   []byte
		wrong string // in the error
	}{
		{"one key", keySet(t, jwk(first, "first", nil)), ""},
		{"no use and no algorithm", keySet(t, jwk(first, "first", object{"use": nil, "alg": nil})), ""},
		{"operations", keySet(t, jwk(first, "first", object{"key_ops": []string{"verify"}})), ""},
		{"a key for encryption beside", set(t, jwk(second, "first", object{"use": "enc"})), ""},
		{"a key of another algorithm beside", set(t, jwk(second, "first", object{"alg": "RS512"})), ""},
		{"a key for other operations beside", set(t, jwk(second, "first", object{"key_ops": []string{"encrypt"}})), ""},
		{"another kind of key beside", set(t, object{"kty": "EC", "kid": "first", "crv": "P-256", "x": "AA", "y": "AA"}), ""},
		{"a secret beside", set(t, object{"kty": "oct", "kid": "first", "k": "AAAA"}), ""},
		{"the most keys", many(int(limits.JwksKeysMax)), ""},
		{"one key more", many(int(limits.JwksKeysMax) + 1), "jwks_keys_max 64"},
		{"no keys", keySet(t), "no RSA key"},
		{"none of RSA", keySet(t, object{"kty": "EC"}), "no RSA key"},
		{"no array", []byte(`{"keys":{}}`), "no array `keys`"},
		{"no object", []byte(`[]`), "no JSON object"},
		{"no JSON", []byte(`keys`), "no JSON object"},
		{"nothing", nil, "no JSON object"},
		{"text behind it", append(keySet(t, jwk(first, "first", nil)), "{}"...), "no JSON object"},
		{"a name twice", []byte(`{"keys":[],"keys":[]}`), "no JSON object"},
		{"an id twice", set(t, jwk(second, "first", nil)), "key 2 of the set: another key has the same id"},
		{"an id that is no text", set(t, jwk(second, "", object{"kid": 1})), "key 2 of the set: its id"},
		{"a member that is no object", []byte(`{"keys":["x"]}`), "key 1 of the set: no object"},
		{"a short key", set(t, jwk(second, "x", object{"n": modulus(2047)})), "key 2 of the set: 2047 bits"},
		{"a key of 1024 bits", set(t, jwk(second, "x", object{"n": modulus(1024)})), "key 2 of the set: 1024 bits"},
		{"the shortest key", set(t, jwk(second, "x", object{"n": modulus(2048)})), ""},
		{"the longest key", set(t, jwk(second, "x", object{"n": modulus(8192)})), ""},
		{"a key that is too long", set(t, jwk(second, "x", object{"n": modulus(8193)})), "8193 bits"},
		{"a key that is far too long", set(t, jwk(second, "x", object{"n": modulus(100_000)})), "do not decode"},
		{"no modulus", set(t, jwk(second, "x", object{"n": nil})), "do not decode"},
		{"a modulus with padding", set(t, jwk(second, "x", object{"n": "AAA="})), "do not decode"},
		{"an exponent of 1", set(t, jwk(second, "x", object{"e": "AQ"})), "exponent"},
		{"an even exponent", set(t, jwk(second, "x", object{"e": "AQAA"})), "exponent"},
		{"no exponent", set(t, jwk(second, "x", object{"e": ""})), "do not decode"},
		{"a large exponent", set(t, jwk(second, "x", object{"e": modulus(33)})), "exponent"},
		{"the largest set", padded(keySet(t, jwk(first, "first", nil)), int(limits.JwksResponseBytesMax)), ""},
		{"a set that is too large", padded(keySet(t, jwk(first, "first", nil)), int(limits.JwksResponseBytesMax)+1), "larger than"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := serve(t, test.set)
			for _, place := range []string{file(t, test.set), server.URL} {
				a, err := auth.New(auth.Options{Config: withKeys("i", place), Limits: limits, Clock: clock.NewManual(now)})
				if test.wrong != "" {
					if err == nil || !strings.Contains(err.Error(), test.wrong) && !strings.Contains(err.Error(), "larger than") || !strings.Contains(err.Error(), place) {
						t.Errorf("error %v", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				want(t, a, rs256(t, firstKey(), "first", claims(object{"iss": "i"})), "")
			}
		})
	}
}

// padded is a text with white space around it up to that many bytes.
func padded(text []byte, size int) []byte {
	return append(bytes.Repeat([]byte(" "), size-len(text)), text...)
}

// issuer is a server of a key set.
type issuer struct {
	*httptest.Server
	mu     sync.Mutex
	set    []byte
	status int
	asked  chan struct{} // one for each request
	hold   chan struct{} // when set, answers wait for it
}

func serve(t *testing.T, set []byte) *issuer {
	s := &issuer{set: set, status: http.StatusOK, asked: make(chan struct{}, 100)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		set, status, hold := s.set, s.status, s.hold
		s.mu.Unlock()
		s.asked <- struct{}{}
		if hold != nil {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(status)
		_, _ = w.Write(set) // the client may be gone
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *issuer) change(set []byte, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set, s.status = set, status
}

// fetched waits for a fetch, which must come.
func (s *issuer) fetched() { <-s.asked }

// refreshing is an authority over the key set of a server, whose background work runs.
type refreshing struct {
	t         *testing.T
	authority *auth.Authority
	clock     *clock.Manual
	metrics   *metrics.Auth
	log       *bytes.Buffer
	stop      func()
}

func refresh(t *testing.T, places map[string]string) *refreshing {
	t.Helper()
	r := &refreshing{t: t, clock: clock.NewManual(now), metrics: metrics.NewAuth(nil), log: &bytes.Buffer{}}
	c := withKeys("", "")
	c.JWKS = places
	var err error
	r.authority, err = auth.New(auth.Options{
		Config: c, Limits: bounds.Default(), Clock: r.clock, Metrics: r.metrics, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.authority.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// refreshes waits until that many fetches have ended with the result, the one at the start included.
func (r *refreshing) refreshes(result string, n int) {
	r.t.Helper()
	for testutil.ToFloat64(r.metrics.JwksRefreshesTotal.WithLabelValues(result)) < float64(n) {
		time.Sleep(time.Millisecond)
	}
}

// armed waits until that many timers are set: all that the background work does between two moves of the clock.
func (r *refreshing) armed(n int) {
	for r.clock.Pending() != n {
		time.Sleep(time.Millisecond)
	}
}

// paused waits until a fetch is due in 10 s.
func (r *refreshing) paused() {
	for {
		if next, set := r.clock.Next(); set && next == 10*time.Second {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// an unknown key id is refused at once, and the key is there for those who come after the refresh.
func TestUnknownKeyStartsARefresh(t *testing.T) {
	first, second := firstKey(), secondKey()
	server := serve(t, keySet(t, jwk(&first.PublicKey, "first", nil)))
	r := refresh(t, map[string]string{"i": server.URL})
	server.fetched()
	r.armed(1)
	c := claims(object{"iss": "i"})
	fresh := rs256(t, second, "second", c)
	server.change(keySet(t, jwk(&second.PublicKey, "second", nil)), http.StatusOK)

	hold := make(chan struct{})
	server.mu.Lock()
	server.hold = hold
	server.mu.Unlock()
	want(t, r.authority, fresh, auth.ReasonKey) // refused while nobody answers: nothing is waited for
	server.fetched()
	want(t, r.authority, fresh, auth.ReasonKey)
	want(t, r.authority, rs256(t, first, "first", c), "")
	close(hold)
	r.refreshes("ok", 2)
	want(t, r.authority, fresh, "")
	want(t, r.authority, rs256(t, first, "first", c), auth.ReasonKey)
	r.stop()
}

// at most one refresh in 10 s, whatever the number of unknown ids.
func TestRefreshesAreRare(t *testing.T) {
	server := serve(t, keySet(t, jwk(&firstKey().PublicKey, "first", nil)))
	r := refresh(t, map[string]string{"i": server.URL})
	server.fetched()
	var unknown []string
	for i := range 5 {
		unknown = append(unknown, rs256(t, firstKey(), fmt.Sprint("unknown", i), claims(object{"iss": "i"})))
	}
	flood := func() {
		for range 10 {
			for _, token := range unknown {
				want(t, r.authority, token, auth.ReasonKey)
			}
		}
	}
	flood()
	server.fetched()
	r.refreshes("ok", 2)
	for n := 3; n < 6; n++ {
		flood()
		r.paused()
		r.clock.Advance(10*time.Second - 1)
		flood()
		if len(server.asked) != 0 {
			t.Fatal("fetched again within 10 s")
		}
		r.clock.Advance(1)
		server.fetched()
		r.refreshes("ok", n)
	}
	r.stop()
	if len(server.asked) > 0 {
		t.Errorf("%d fetches more", len(server.asked))
	}
}

// A set that is refused leaves the previous one in service.
func TestRefusedSetLeavesThePrevious(t *testing.T) {
	first := firstKey()
	good := keySet(t, jwk(&first.PublicKey, "first", nil))
	server := serve(t, good)
	r := refresh(t, map[string]string{"i": server.URL})
	server.fetched()
	known := rs256(t, first, "first", claims(object{"iss": "i"}))
	unknown := rs256(t, first, "second", claims(object{"iss": "i"}))
	for i, answer := range []struct {
		set    []byte
		status int
	}{
		{[]byte("no key set"), http.StatusOK},
		{good, http.StatusInternalServerError},
		{good, http.StatusFound},
		{good, http.StatusNoContent},
		{padded(good, int(bounds.Default().JwksResponseBytesMax)+1), http.StatusOK},
		{keySet(t, jwk(&first.PublicKey, "first", object{"n": modulus(1024)})), http.StatusOK},
	} {
		server.change(answer.set, answer.status)
		want(t, r.authority, unknown, auth.ReasonKey)
		if i > 0 {
			r.paused()
			r.clock.Advance(10 * time.Second)
		}
		server.fetched()
		r.refreshes("failed", i+1)
		want(t, r.authority, known, "")
	}
	r.stop()
	if n := strings.Count(r.log.String(), "level=WARN"); n != 6 {
		t.Errorf("%d warnings of 6 refusals:\n%s", n, r.log)
	}
}

// A key that is withdrawn goes out of use although nobody shows an unknown one; an issuer that does not answer holds up no other.
func TestKeySetsAreRefreshedAtTimes(t *testing.T) {
	first, second := firstKey(), secondKey()
	slow, server := serve(t, keySet(t, jwk(&first.PublicKey, "first", nil))), serve(t, keySet(t, jwk(&first.PublicKey, "first", nil)))
	r := refresh(t, map[string]string{"a": slow.URL, "b": server.URL})
	slow.fetched()
	server.fetched()
	slow.mu.Lock()
	slow.hold = make(chan struct{}) // for ever
	slow.mu.Unlock()
	server.change(keySet(t, jwk(&second.PublicKey, "second", nil)), http.StatusOK)
	r.armed(2)
	r.clock.Advance(15 * time.Minute)
	slow.fetched()
	r.refreshes("ok", 3)
	later := claims(object{"exp": now.Unix() + 3600})
	later["iss"] = "b"
	want(t, r.authority, rs256(t, first, "first", later), auth.ReasonKey)
	want(t, r.authority, rs256(t, second, "second", later), "")
	later["iss"] = "a"
	want(t, r.authority, rs256(t, first, "first", later), "")
	r.stop() // also while a fetch waits
}

// A key set in a file is looked at again, at most every 10 s.
func TestKeySetFilesAreReloaded(t *testing.T) {
	first, second := firstKey(), secondKey()
	path := file(t, keySet(t, jwk(&first.PublicKey, "k", nil)))
	clock, counters := clock.NewManual(now), metrics.NewReload(nil)
	a, err := auth.New(auth.Options{Config: withKeys("i", path), Limits: bounds.Default(), Clock: clock, Reload: counters})
	if err != nil {
		t.Fatal(err)
	}
	c := claims(object{"iss": "i"})
	replace(t, path, keySet(t, jwk(&second.PublicKey, "k", nil)))
	want(t, a, rs256(t, second, "k", c), auth.ReasonSignature)
	clock.Advance(10 * time.Second)
	want(t, a, rs256(t, second, "k", c), "")
	want(t, a, rs256(t, first, "k", c), auth.ReasonSignature)
	replace(t, path, []byte("no key set"))
	clock.Advance(10 * time.Second)
	want(t, a, rs256(t, second, "k", c), "")
	if got := testutil.ToFloat64(counters.FailuresTotal.WithLabelValues("jwks")); got != 1 {
		t.Errorf("%v failures counted", got)
	}
}

// replace puts another file in the place of one, as tools that deploy secrets do.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.Rename(file(t, content), path); err != nil {
		t.Fatal(err)
	}
}

func TestSecretFileIsReloaded(t *testing.T) {
	for name, content := range map[string][]byte{"plain": secret, "with a line break": append(secret[:len(secret):len(secret)], "\r\n"...)} {
		t.Run(name, func(t *testing.T) {
			path := file(t, content)
			c := config()
			c.HMACSecret, c.HMACSecretFile = nil, path
			clock := clock.NewManual(now)
			a, err := auth.New(auth.Options{Config: c, Limits: bounds.Default(), Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			shown := hs256(t, claims(nil))
			want(t, a, shown, "")
			replace(t, path, []byte("another secret\n"))
			clock.Advance(10 * time.Second)
			want(t, a, shown, auth.ReasonSignature)
			replace(t, path, []byte("\n"))
			clock.Advance(10 * time.Second)
			want(t, a, shown, auth.ReasonSignature) // an empty secret is none: the previous one stays
			replace(t, path, content)
			clock.Advance(10 * time.Second)
			want(t, a, shown, "")
		})
	}
}

func TestConfigurationErrors(t *testing.T) {
	set := file(t, keySet(t, jwk(&firstKey().PublicKey, "k", nil)))
	for _, test := range []struct {
		name   string
		change func(c *auth.Config)
		wrong  string
	}{
		{"no key", func(c *auth.Config) { c.HMACSecret = nil }, "hmac_secret"},
		{"two kinds of keys", func(c *auth.Config) { c.JWKS = map[string]string{"i": set} }, "only one"},
		{"secret and file", func(c *auth.Config) { c.HMACSecretFile = set }, "only one"},
		{"issuers beside key sets", func(c *auth.Config) { *c = withKeys("i", set); c.Issuers = []string{"i"} }, "issuers"},
		{"a missing secret", func(c *auth.Config) { c.HMACSecret, c.HMACSecretFile = nil, set+".missing" }, "hmac_secret_file: "},
		{"an empty secret", func(c *auth.Config) { c.HMACSecret, c.HMACSecretFile = nil, file(t, []byte("\n")) }, "holds no secret"},
		{"a missing key set", func(c *auth.Config) { *c = withKeys("i", set+".missing") }, `jwks of issuer "i": `},
		{"http to elsewhere", func(c *auth.Config) { *c = withKeys("i", "http://id.example/keys") }, "neither https nor http to a loopback"},
		{"http to a name like loopback", func(c *auth.Config) { *c = withKeys("i", "http://localhost.example/keys") }, "neither https"},
		{"another scheme", func(c *auth.Config) { *c = withKeys("i", "file:///etc/keys") }, "neither https"},
		{"https to nowhere", func(c *auth.Config) { *c = withKeys("i", "https:///keys") }, "neither https"},
		{"a user in the URL", func(c *auth.Config) { *c = withKeys("i", "https://user:hidden@id.example/keys") }, "user"},
		{"no URL", func(c *auth.Config) { *c = withKeys("i", "https://[::1") }, "does not parse"},
		{"nobody listens", func(c *auth.Config) { *c = withKeys("i", "http://127.0.0.1:1/keys") }, "127.0.0.1:1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config()
			test.change(&c)
			_, err := auth.New(auth.Options{Config: c, Limits: bounds.Default(), Clock: clock.NewManual(now)})
			if err == nil || !strings.Contains(err.Error(), test.wrong) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("error %v", err)
			}
		})
	}
}

// Counters of what became of tokens carry the fixed words and nothing else.
func TestOutcomesAreCounted(t *testing.T) {
	counters := metrics.NewAuth(nil)
	a, err := auth.New(auth.Options{Config: config(), Limits: bounds.Default(), Clock: clock.NewManual(now), Metrics: counters})
	if err != nil {
		t.Fatal(err)
	}
	want(t, a, hs256(t, claims(nil)), "")
	want(t, a, "x", auth.ReasonTokenMalformed)
	want(t, a, "y", auth.ReasonTokenMalformed)
	if n := testutil.ToFloat64(counters.AcceptsTotal); n != 1 {
		t.Errorf("%v accepts", n)
	}
	if n := testutil.ToFloat64(counters.RefusalsTotal.WithLabelValues("token malformed")); n != 2 {
		t.Errorf("%v refusals", n)
	}
	if n := testutil.CollectAndCount(counters.RefusalsTotal); n != 1 {
		t.Errorf("%d series of refusals", n)
	}
}
