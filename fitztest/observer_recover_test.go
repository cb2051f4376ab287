package fitztest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// malformed makes a NOTIFY one with a payload, which does not decode (L-74).
func malformed(value []byte) []byte {
	value[len(value)-1] = 1
	return append(value, 'x')
}

// few makes the broker end registrations of clients that do not read.
var few = []fitztest.Option{fitztest.WithLimits(func(l *bounds.Limits) { l.SessionNotifyFramesMax = 4 })}

// flood changes so much that a frozen client does not get it: more than the connection and the share of the broker hold.
func (w *world) flood() {
	for range 800 {
		w.take("flood")
		w.free("flood")
	}
	synctest.Wait()
}

// Scenarios of observer.md section 8 about gaps and recovery (OB-30 to OB-37).
func TestObserverRecovery(t *testing.T) {
	obs(t, "OBS-040", setup{}, func(w *world) {
		w.take("a", "b", "c")
		o := w.observe(nil).ready().forget()
		w.net.Refuse(true)
		w.net.Cut()
		o.is(fitz.ObserverStale, fitz.StaleDisconnected)
		o.shows("a b c")
		if s, _ := o.Snapshot(); !s.Stale {
			w.Error("OB-35: the snapshot is not flagged")
		}
		w.free("a")
		w.take("d")
		w.net.Refuse(false)
		lists, subscribes := w.lists(), w.subscribes()
		w.rest(10 * time.Second)
		o.told("stale(disconnected) removed(a) added(d) fresh")
		s := o.is(fitz.ObserverReady, "")
		if w.subscribes()-subscribes != 1 || w.lists()-lists != 1 || s.Passes != 2 || s.Generation != 2 || s.DriftFound != 0 {
			w.Errorf("%d SUBSCRIBE, %d LIST, %+v", w.subscribes()-subscribes, w.lists()-lists, s)
		}
		if s, _ := o.Snapshot(); s.Stale {
			w.Error("the snapshot is still flagged")
		}
		o.agrees()
	})
	obs(t, "OBS-041", setup{}, func(w *world) {
		w.take("a", "b", "c")
		o := w.observe(nil).ready().forget()
		before := o.Status().BrokerLifetime
		w.net.Refuse(true)
		w.broker.Restart()
		w.holder = w.broker.Holder()
		w.take("b")
		w.net.Refuse(false)
		w.rest(10 * time.Second)
		o.told("stale(disconnected) removed(a) changed(b) removed(c) fresh")
		s, _ := o.Snapshot()
		if w.labels == (s.BrokerLifetime == before) {
			w.Errorf("lifetime %q after %q", s.BrokerLifetime, before)
		}
		o.is(fitz.ObserverReady, "")
		o.agrees()
	})
	obs(t, "OB-30/broker_restarted", setup{labels: true}, func(w *world) {
		// The lifetime that is seen after the reconnect belongs to the same gap: one generation, another reason, no second event.
		o := w.observe(nil).ready().forget()
		rule := w.net.Hold(once(toBroker(wire.TypeLeaseSubscribe)))
		w.broker.Restart()
		if err := rule.Await(w.Context(), 1); err != nil {
			w.Fatal(err)
		}
		if s := o.is(fitz.ObserverStale, fitz.StaleBrokerRestarted); s.Generation != 2 {
			w.Errorf("%+v", s)
		}
		o.told("stale(disconnected)")
		rule.Remove()
		w.rest(time.Second)
		o.told("stale(disconnected) fresh")
	})
	obs(t, "OBS-042", setup{labels: true, broker: few}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		w.net.Freeze(true)
		w.flood()
		w.net.Freeze(false)
		w.rest(5 * time.Second)
		s := o.is(fitz.ObserverReady, "")
		if w.subscribes() != 2 || s.Dropped == 0 || s.Generation != 2 {
			w.Errorf("%d SUBSCRIBE, %+v", w.subscribes(), s)
		}
		if story := o.story(); story[:len("stale(subscription_ended)")] != "stale(subscription_ended)" && s.Repairs == 0 {
			w.Errorf("told %q", story)
		}
		o.agrees()
	})
	obs(t, "OBS-043", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		rule := w.net.Edit(once(toClient(wire.TypeLeaseSubscribe)), refusal(wire.CodeLeaseQueueFull))
		w.net.Cut()
		_ = rule.Await(w.Context(), 1)
		refused := time.Now()
		subscribes := w.subscribes()
		if err := w.net.Await(w.Context(), fitztest.ToBroker, wire.TypeLeaseSubscribe, subscribes+1); err != nil {
			w.Fatal(err)
		}
		if d := time.Since(refused); d != 187500*time.Microsecond {
			w.Errorf("OB-43: SUBSCRIBE again after %v", d)
		}
		w.rest(time.Second)
		if s := o.is(fitz.ObserverReady, ""); !isCode(s.LastError, fitz.CodeLeaseQueueFull) || s.Generation != 3 {
			w.Errorf("%+v", s)
		}
		o.told("stale(disconnected) fresh")
	})
	obs(t, "OBS-044", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		w.net.Edit(once(toClient(wire.TypeLeaseList)), refusal(wire.CodeLeaseTimeout))
		w.net.Cut()
		w.rest(10 * time.Second)
		if s := o.is(fitz.ObserverReady, ""); !isCode(s.LastError, fitz.CodeLeaseTimeout) || s.Passes != 2 {
			w.Errorf("%+v", s)
		}
		o.told("stale(disconnected) fresh")
	})
	obs(t, "OBS-045", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		rule := w.net.Hold(once(toClient(wire.TypeLeaseList)))
		w.net.Cut()
		_ = rule.Await(w.Context(), 1)
		o.is(fitz.ObserverSyncing, fitz.StaleDisconnected)
		w.take("b")
		w.net.Cut()
		w.rest(10 * time.Second)
		if s := o.is(fitz.ObserverReady, ""); s.Generation != 3 || s.Passes != 2 || w.subscribes() != 3 {
			w.Errorf("%d SUBSCRIBE, %+v", w.subscribes(), s)
		}
		o.told("stale(disconnected) added(b) fresh")
	})
	obs(t, "OBS-046", setup{labels: true}, func(w *world) {
		w.take("a")
		late := w.net.HoldAlone(once(toClient(wire.TypeLeaseList)))
		o := w.observe(nil)
		_ = late.Await(w.Context(), 1)
		w.net.Edit(once(toClient(wire.TypeLeaseNotify)), malformed)
		w.take("b")
		w.rest(time.Second)
		o.ready().shows("a b")
		w.free("a")
		w.rest(time.Second)
		late.Remove()
		w.rest(time.Second)
		o.shows("b")
		if s := o.Status(); s.Passes != 1 || s.Generation != 2 {
			w.Errorf("OB-31: %+v", s)
		}
		o.agrees()
	})
	obs(t, "OBS-047", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		w.net.Edit(once(toClient(wire.TypeLeaseNotify)), malformed)
		w.take("b")
		w.rest(time.Second)
		o.told("stale(decode_error) added(b) fresh")
		s := o.is(fitz.ObserverReady, "")
		if w.subscribes() != 2 || w.sent(wire.TypeLeaseUnsubscribe) != 1 || s.Generation != 2 || !isCode(s.LastError, fitz.CodeProtocolViolation) {
			w.Errorf("%d SUBSCRIBE, %d UNSUBSCRIBE, %+v", w.subscribes(), w.sent(wire.TypeLeaseUnsubscribe), s)
		}
		w.take("c") // the new registration works
		w.rest(coalesce)
		o.agrees()
	})
	obs(t, "OB-30/outside_the_selector", setup{}, func(w *world) {
		// A notification of a route that cannot match is as good as one that does not decode.
		o := w.observe(nil).ready().forget()
		w.net.Edit(once(toClient(wire.TypeLeaseNotify)), func(value []byte) []byte {
			var m wire.LeaseNotify
			_ = m.DecodeValue(value)
			m.Route = "lease://other/renderers/a"
			value, _ = m.AppendValue(nil)
			return value
		})
		w.take("b")
		w.rest(time.Second)
		o.told("stale(decode_error) added(b) fresh")
		if w.subscribes() != 2 || w.sent(wire.TypeLeaseUnsubscribe) != 1 {
			w.Errorf("%d SUBSCRIBE, %d UNSUBSCRIBE", w.subscribes(), w.sent(wire.TypeLeaseUnsubscribe))
		}
	})
	obs(t, "OB-43/gaps", setup{}, func(w *world) {
		// A broker whose every notification is malformed is not asked in a tight loop.
		o := w.observe(nil).ready()
		w.net.Edit(toClient(wire.TypeLeaseNotify), malformed)
		w.net.Edit(toClient(wire.TypeLeaseList), refusal(wire.CodeLeaseTimeout)) // so that nothing is installed in between
		subscribes := w.subscribes()
		for range 100 {
			w.take("a")
			w.free("a")
			time.Sleep(10 * time.Millisecond)
		}
		if n := w.subscribes() - subscribes; n < 2 || n > 6 {
			w.Errorf("%d SUBSCRIBE in a second", n)
		}
		if s := o.Status(); !s.Synced || s.State == fitz.ObserverReady {
			w.Errorf("%+v", s)
		}
	})
	obs(t, "OBS-048", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		rule := w.net.Edit(toClient(wire.TypeLeaseList), refusal(wire.CodeLeaseTimeout))
		w.rest(3*time.Minute - time.Second)
		o.is(fitz.ObserverReady, "")
		w.rest(2 * time.Second)
		if s := o.is(fitz.ObserverStale, fitz.StaleNoRecentPass); !s.Synced || s.Generation != 1 {
			w.Errorf("OB-36: %+v", s)
		}
		o.shows("a")
		o.told("stale(no_recent_pass)")
		rule.Remove()
		w.rest(10 * time.Second)
		o.told("stale(no_recent_pass) fresh")
		o.is(fitz.ObserverReady, "")
		if w.subscribes() != 1 {
			w.Errorf("%d SUBSCRIBE", w.subscribes())
		}
	})
	obs(t, "OBS-049", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		again := w.broker.Holder()
		_ = w.holder.Close()
		w.rest(2 * time.Millisecond) // so that the acquisition has another time, where no incarnation tells them apart
		w.holder = again
		w.take("a")
		w.rest(time.Second)
		o.told("changed(a)")
		o.agrees()
		s, _ := o.Snapshot()
		if e, _ := s.Get(at("a")); e.OwnerID != "w" {
			w.Errorf("%+v", e)
		}
	})
	obs(t, "OBS-050", setup{noLabels: true, broker: few}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		w.net.Freeze(true)
		w.flood()
		w.net.Freeze(false)
		w.rest(10 * time.Second)
		if s := o.is(fitz.ObserverReady, ""); s.Generation != 2 || w.net.Dials() != 2 {
			w.Errorf("%d connections, %+v", w.net.Dials(), s)
		}
		o.agrees()
	})
	obs(t, "OBS-051", setup{}, func(w *world) {
		o := w.observe(nil).ready().forget()
		w.net.Edit(once(toClient(wire.TypeLeaseNotify)), func(value []byte) []byte {
			value[0]++ // of the subscription id
			return value
		})
		w.take("a")
		w.rest(time.Second)
		if s := o.is(fitz.ObserverReady, ""); s.Notifications != 0 || s.Repairs != 0 {
			w.Errorf("%+v", s)
		}
	})
	obs(t, "OBS-052", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		w.net.Edit(once(toClient(wire.TypeLeaseNotify)), malformed)
		lists, subscribes := w.lists(), w.subscribes()
		hold := w.net.Hold(once(toBroker(wire.TypeLeaseSubscribe)))
		w.take("b")
		_ = hold.Await(w.Context(), 1)
		refreshed := make(chan error, 1)
		go func() { refreshed <- o.Refresh(context.Background()) }()
		synctest.Wait()
		w.net.Cut()
		hold.Remove()
		w.rest(10 * time.Second)
		if err := <-refreshed; err != nil {
			w.Errorf("refresh: %v", err)
		}
		o.told("stale(decode_error) added(b) fresh")
		if s := o.is(fitz.ObserverReady, ""); w.lists()-lists > 2 || s.Passes > 3 || w.subscribes()-subscribes > 2 {
			w.Errorf("OB-33: %d LIST, %d SUBSCRIBE, %+v", w.lists()-lists, w.subscribes()-subscribes, s)
		}
	})
	obs(t, "OBS-053", setup{}, func(w *world) {
		o := w.observe(&fitz.ObserveOptions{ReconcileMax: 24 * time.Hour}).ready().forget()
		w.net.Cut()
		w.rest(10 * time.Second)
		o.is(fitz.ObserverReady, "")
		o.told("stale(disconnected) fresh")
	})
	obs(t, "W-66/frozen", setup{labels: true}, func(w *world) {
		// A connection that is silent is seen as such, however quiet the inventory is.
		o := w.observe(nil).ready().forget()
		w.net.BlackHole(true)
		w.rest(bounds.SDKPeerTimeoutMs*time.Millisecond + time.Second)
		o.is(fitz.ObserverStale, fitz.StaleDisconnected)
		w.net.BlackHole(false)
		w.rest(time.Minute)
		o.is(fitz.ObserverReady, "")
		o.told("stale(disconnected) fresh")
	})
	obs(t, "OBS-072", setup{}, func(w *world) {
		w.net.Edit(toClient(wire.TypeLeaseSubscribe), refusal(wire.CodeLeaseUnauthorized))
		o := w.observe(nil)
		if err := o.Ready(w.Context()); !isCode(err, fitz.CodeLeaseUnauthorized) {
			w.Errorf("ready: %v", err)
		}
		w.rest(time.Minute)
		o.is(fitz.ObserverFailed, fitz.StaleFailed)
		if w.subscribes() != 1 || w.lists() != 0 {
			w.Errorf("OB-37: %d SUBSCRIBE, %d LIST", w.subscribes(), w.lists())
		}
		if err := o.Refresh(w.Context()); !isCode(err, fitz.CodeLeaseUnauthorized) {
			w.Errorf("refresh: %v", err)
		}
		<-o.ended
		if !isCode(o.err, fitz.CodeLeaseUnauthorized) {
			w.Errorf("changes ended with %v", o.err)
		}
	})
	obs(t, "OBS-080", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready().forget()
		w.net.Edit(toClient(wire.TypeLeaseSubscribe), refusal(wire.CodeLeaseUnauthorized))
		w.net.Cut()
		w.rest(time.Minute)
		o.is(fitz.ObserverFailed, fitz.StaleFailed)
		o.shows("a")
		if s, _ := o.Snapshot(); !s.Stale {
			w.Error("the last view is not flagged")
		}
		o.told("stale(disconnected)")
	})
	obs(t, "OB-37/token_refused", setup{noLabels: true, tcp: true}, func(w *world) {
		// An orderly close while a session is being opened is a refusal of the token on TCP: the client ends, and its observers fail.
		w.take("a")
		o := w.observe(nil).ready().forget()
		w.net.Cut()
		if err := w.net.Await(w.Context(), fitztest.ToBroker, wire.TypeConnect, 2); err != nil {
			w.Fatal(err)
		}
		w.broker.Stop()
		w.rest(time.Minute)
		o.is(fitz.ObserverFailed, fitz.StaleFailed)
		o.shows("a")
		if err := o.Ready(w.Context()); !isCode(err, fitz.CodeAuthRejected) {
			w.Errorf("ready: %v", err)
		}
		if _, err := w.client.Lease().Observe(selector, nil); !isCode(err, fitz.CodeAuthRejected) {
			w.Errorf("observe: %v", err)
		}
	})
	obs(t, "OBS-081", setup{}, func(w *world) {
		for i := range bounds.WildcardSubsPerSessionMax {
			s, err := w.client.Lease().Subscribe(w.Context(), "lease://acme/"+string(rune('a'+i/26))+string(rune('a'+i%26))+"/*", nil)
			if err != nil {
				w.Fatal(err)
			}
			w.Cleanup(func() { _ = s.Close() })
		}
		o := w.observe(nil)
		if err := o.Ready(w.Context()); !isCode(err, fitz.CodeLeaseBadRequest) || fitz.ClassOf(err) != fitz.ClassSubscriptionLimit {
			w.Errorf("ready: %v of class %s", err, fitz.ClassOf(err))
		}
		o.is(fitz.ObserverFailed, fitz.StaleFailed)
	})
	obs(t, "OBS-082", setup{}, func(w *world) {
		w.take("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
		full := w.observe(&fitz.ObserveOptions{MaxItems: 10}).ready()
		w.take("k")
		w.rest(time.Second)
		full.is(fitz.ObserverFailed, fitz.StaleFailed)
		o := w.observe(&fitz.ObserveOptions{MaxItems: 10})
		if err := o.Ready(w.Context()); !isCode(err, fitz.CodeObsViewTooLarge) {
			w.Errorf("ready: %v", err)
		}
	})
	obs(t, "C-67", setup{}, func(w *world) {
		w.net.Edit(once(toClient(wire.TypeLeaseList)), refusal(wire.CodeLeaseBadRequest))
		o := w.observe(nil).ready() // 5008 on LIST is tried again, unlike on SUBSCRIBE
		if s := o.is(fitz.ObserverReady, ""); fitz.ClassOf(s.LastError) != fitz.ClassLeaseBadRequest {
			w.Errorf("%v of class %s", s.LastError, fitz.ClassOf(s.LastError))
		}
	})
}
