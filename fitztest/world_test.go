package fitztest_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/client"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// selector is S of observer.md section 8.
const selector = "lease://acme/renderers/*"

func at(name string) string { return "lease://acme/renderers/" + name }

// world is one client, one broker and another client that changes what is held, in the time of a bubble.
type world struct {
	*testing.T
	broker *fitztest.Broker
	net    *fitztest.Network
	client *fitz.Client
	holder *client.Client
	tokens map[string]uint64
	labels bool
	own    map[wire.MessageType]int // requests of a scenario itself that an observer must not send
}

// setup says how a world is made.
type setup struct {
	broker   []fitztest.Option
	client   []fitz.Option
	labels   bool // only with labels: the scenario needs what a hello announces
	noLabels bool // only without
	tcp      bool // only over TCP: the scenario is costly, and nothing in it depends on the transport
}

// obs runs a scenario of observer.md section 8 with labels, and against a broker that announces nothing, over both transports.
func obs(t *testing.T, id string, s setup, scenario func(w *world)) {
	t.Run(id, func(t *testing.T) {
		both(t, s, scenario)
		if !s.tcp {
			s.broker = append(slices.Clone(s.broker), fitztest.WithWebSocket())
			t.Run("websocket", func(t *testing.T) { both(t, s, scenario) })
		}
	})
}

func both(t *testing.T, s setup, scenario func(w *world)) {
	if !s.noLabels {
		t.Run("labels", func(t *testing.T) { inWorld(t, s, true, scenario) })
	}
	if !s.labels {
		t.Run("no_hello", func(t *testing.T) { inWorld(t, s, false, scenario) })
	}
}

func inWorld(t *testing.T, s setup, labels bool, scenario func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		options := slices.Clone(s.broker)
		if !labels {
			options = append(options, fitztest.WithoutHello())
		}
		b := fitztest.Start(t, options...)
		w := &world{T: t, broker: b, net: b.Network(), tokens: map[string]uint64{}, labels: labels, own: map[wire.MessageType]int{}}
		w.client = b.Connect(append([]fitz.Option{fitz.WithRandom(func() float64 { return 0.5 })}, s.client...)...)
		w.holder = b.Holder()
		scenario(w)
		w.onlyObserved()
	})
}

// onlyObserved checks OBS-029 and OBS-093: an observer takes, renews, releases and queries nothing. It looks at what the client has written,
// whether or not a fault let that through.
func (w *world) onlyObserved() {
	w.Helper()
	for _, typ := range []wire.MessageType{wire.TypeLeaseAcquire, wire.TypeLeaseRenew, wire.TypeLeaseRelease, wire.TypeLeaseQuery} {
		if n := w.net.Written(fitztest.ToBroker, typ) - w.own[typ]; n != 0 {
			w.Errorf("OBS-029, OBS-093: an observer sent %d of %v", n, typ)
		}
	}
	if n := w.net.Written(fitztest.ToBroker, wire.TypeLeaseList); n < w.lists() {
		w.Errorf("%d LIST were delivered, but only %d were written", w.lists(), n)
	}
}

// query asks for a route as the application, with the client that observes.
func (w *world) query(name string) (fitz.LeaseInfo, error) {
	w.own[wire.TypeLeaseQuery]++
	return w.client.Lease().Query(context.Background(), at(name))
}

// rest lets d pass and everything come to rest.
func (w *world) rest(d time.Duration) {
	time.Sleep(d) // of the bubble
	synctest.Wait()
}

func (w *world) sent(typ wire.MessageType) int { return w.net.Passed(fitztest.ToBroker, typ) }
func (w *world) lists() int                    { return w.sent(wire.TypeLeaseList) }
func (w *world) subscribes() int               { return w.sent(wire.TypeLeaseSubscribe) }
func toBroker(typ wire.MessageType) fitztest.Filter {
	return fitztest.Filter{Direction: fitztest.ToBroker, Type: typ}
}
func toClient(typ wire.MessageType) fitztest.Filter {
	return fitztest.Filter{Direction: fitztest.ToClient, Type: typ}
}

func once(f fitztest.Filter) fitztest.Filter { f.Count = 1; return f }

func skip(n int, f fitztest.Filter) fitztest.Filter { f.Skip = n; return f }

// take acquires routes as the holder.
func (w *world) take(names ...string) {
	w.Helper()
	for _, name := range names {
		w.takeAs(w.holder, name, 3600)
	}
}

func (w *world) takeAs(c *client.Client, name string, ttl uint64) {
	w.Helper()
	reply, err := c.LeaseAcquire(context.Background(), &wire.LeaseAcquireRequest{Route: at(name), OwnerID: "w", TTL: ttl})
	if err != nil {
		w.Fatalf("acquire %s: %v", name, err)
	}
	w.tokens[name] = reply.FencingToken
}

// free releases routes of the holder.
func (w *world) free(names ...string) {
	w.Helper()
	for _, name := range names {
		if _, err := w.holder.LeaseRelease(context.Background(), &wire.LeaseReleaseRequest{Route: at(name), OwnerID: "w", FencingToken: w.tokens[name]}); err != nil {
			w.Fatalf("release %s: %v", name, err)
		}
	}
}

func (w *world) renew(name string) {
	w.Helper()
	if _, err := w.holder.LeaseRenew(context.Background(), &wire.LeaseRenewRequest{Route: at(name), OwnerID: "w", FencingToken: w.tokens[name], TTL: 3600}); err != nil {
		w.Fatalf("renew %s: %v", name, err)
	}
}

// watched is an observer and what one loop over its changes saw.
type watched struct {
	*fitz.InventoryObserver
	w *world

	mu      sync.Mutex
	changes []fitz.InventoryChange
	times   []time.Time
	view    map[string]fitz.LeaseEntry // every change applied
	err     error
	ended   chan struct{}
}

// observe starts an observer with a loop over its changes.
func (w *world) observe(o *fitz.ObserveOptions) *watched { w.Helper(); return w.observeAt(selector, o) }

func (w *world) observeAt(selector string, o *fitz.ObserveOptions) *watched {
	w.Helper()
	x, err := w.client.Lease().Observe(selector, o)
	if err != nil {
		w.Fatal(err)
	}
	v := &watched{InventoryObserver: x, w: w, ended: make(chan struct{})}
	go v.read()
	w.Cleanup(func() {
		_ = x.Close()
		<-v.ended
	})
	return v
}

func (v *watched) read() {
	defer close(v.ended)
	for c, err := range v.Changes(context.Background()) {
		v.mu.Lock()
		if err != nil {
			v.err = err
		} else {
			v.changes = append(v.changes, c)
			v.times = append(v.times, time.Now())
			v.apply(c)
		}
		v.mu.Unlock()
	}
}

func (v *watched) apply(c fitz.InventoryChange) {
	switch c.Kind {
	case fitz.InventoryReset:
		v.view = map[string]fitz.LeaseEntry{}
		for e := range c.Inventory.All() {
			v.view[e.Route] = e
		}
	case fitz.InventoryAdded, fitz.InventoryChanged:
		v.view[c.After.Route] = c.After
	case fitz.InventoryRemoved:
		delete(v.view, c.Before.Route)
	}
}

// ready waits for the first inventory and everything that follows from it.
func (v *watched) ready() *watched {
	v.w.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := v.Ready(ctx); err != nil {
		v.w.Fatalf("ready: %v (%+v)", err, v.Status())
	}
	synctest.Wait()
	return v
}

// Status is what the observer says when everything has come to rest: what a test does is seen by others before it is done with there.
func (v *watched) Status() fitz.ObserverStatus {
	synctest.Wait()
	return v.InventoryObserver.Status()
}

// names are the last segments of an inventory, when everything has come to rest.
func (v *watched) names() string {
	synctest.Wait()
	s, ok := v.Snapshot()
	if !ok {
		return "absent"
	}
	var names []string
	for e := range s.All() {
		names = append(names, strings.TrimPrefix(e.Route, at("")))
	}
	return strings.Join(names, " ")
}

// story is what the loop was told, as words: reset(a b) added(c) stale(disconnected).
// It waits until everything has come to rest.
func (v *watched) story() string {
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	var words []string
	for _, c := range v.changes {
		text := string(c.Reason)
		switch c.Kind {
		case fitz.InventoryReset:
			text = strconv.Itoa(c.Inventory.Len())
		case fitz.InventoryAdded, fitz.InventoryChanged:
			text = strings.TrimPrefix(c.After.Route, at(""))
		case fitz.InventoryRemoved:
			text = strings.TrimPrefix(c.Before.Route, at(""))
		}
		word := string(c.Kind)
		if text != "" {
			word += "(" + text + ")"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// forget drops what the loop was told so far, and what it has still to be told of what has happened.
func (v *watched) forget() *watched {
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	v.changes, v.times = nil, nil
	return v
}

// told checks what the loop was told.
func (v *watched) told(want string) {
	v.w.Helper()
	if got := v.story(); got != want {
		v.w.Errorf("told %q, want %q", got, want)
	}
}

// is checks state and reason.
func (v *watched) is(state fitz.ObserverState, reason fitz.StaleReason) fitz.ObserverStatus {
	v.w.Helper()
	s := v.Status()
	if s.State != state || s.Reason != reason {
		v.w.Errorf("state %s(%s), want %s(%s); %+v", s.State, s.Reason, state, reason, s)
	}
	return s
}

// shows checks the routes of the inventory.
func (v *watched) shows(want string) {
	v.w.Helper()
	if got := v.names(); got != want {
		v.w.Errorf("inventory %q, want %q", got, want)
	}
}

// agrees checks that inventory, applied changes and the broker are the same.
func (v *watched) agrees() {
	v.w.Helper()
	var held []string
	for _, item := range v.w.broker.Held(selector) {
		held = append(held, strings.TrimPrefix(item.Route, at("")))
	}
	slices.Sort(held)
	v.shows(strings.Join(held, " "))
	s, ok := v.Snapshot()
	if !ok {
		return // told by shows
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if s.Len() != len(v.view) {
		v.w.Errorf("OB-54: changes lead to %d leases, the inventory has %d", len(v.view), s.Len())
	}
	for e := range s.All() {
		if seen := v.view[e.Route]; seen.HolderIncarnation != e.HolderIncarnation || !seen.AcquiredAt.Equal(e.AcquiredAt) {
			v.w.Errorf("OB-54: changes lead to %+v, the inventory has %+v", seen, e)
		}
	}
}

// refusal makes a reply a refusal with a code.
func refusal(code wire.Code) func([]byte) []byte {
	return func([]byte) []byte { return wire.AppendCoded(nil, code, "made by the test") }
}

// editList changes a LIST reply.
func editList(t *testing.T, change func(*wire.LeaseListReply)) func([]byte) []byte {
	return func(value []byte) []byte {
		var m wire.LeaseListReply
		if err := m.DecodeValue(value); err != nil {
			t.Errorf("edit LIST: %v", err)
			return value
		}
		change(&m)
		out, err := m.AppendValue(nil)
		if err != nil {
			t.Errorf("edit LIST: %v", err)
		}
		return out
	}
}

// isCode reports whether err is an error of the SDK with that code.
func isCode(err error, code fitz.Code) bool {
	var e *fitz.Error
	return errors.As(err, &e) && e.Code == code
}
