package fitztest_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fitzwire/fitz/fitztest"
	"github.com/fitzwire/fitz/generated/go/bounds"
	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/generated/go/wire"
	"github.com/fitzwire/fitz/internal/reference"
)

// Scenarios of observer.md section 8 about consumers, refresh and close (OB-55 to OB-67).
func TestObserverLife(t *testing.T) {
	obs(t, "OBS-060", setup{}, func(w *world) {
		o := w.observe(&fitz.ObserveOptions{ChangeBuffer: 4}).ready()
		read := make(chan fitz.InventoryChange)
		ctx, cancel := context.WithCancel(context.Background())
		var group sync.WaitGroup
		group.Go(func() {
			defer close(read)
			for c, err := range o.Changes(ctx) {
				if err == nil {
					read <- c // the loop stands still until somebody wants it
				}
			}
		})
		if c := <-read; c.Kind != fitz.InventoryReset || c.Inventory.Len() != 0 {
			w.Errorf("first %+v", c)
		}
		for i := range 10 {
			w.take(fmt.Sprint("r", i))
			w.rest(coalesce)
		}
		if c := <-read; c.Kind != fitz.InventoryAdded { // it was taken before the buffer was full
			w.Errorf("then %+v", c)
		}
		c := <-read
		if s, _ := o.Snapshot(); c.Kind != fitz.InventoryReset || c.Inventory.Len() != 10 || c.Inventory.Version != s.Version {
			w.Errorf("OB-56: %+v", c)
		}
		w.take("live")
		w.rest(coalesce)
		if c := <-read; c.Kind != fitz.InventoryAdded || c.After.Route != at("live") {
			w.Errorf("then %+v", c)
		}
		if s := o.Status(); s.Dropped != 9 {
			w.Errorf("dropped %d", s.Dropped)
		}
		cancel()
		for range read {
		}
		group.Wait()
		if got := strings.Count(o.story(), "added"); got != 11 { // OBS-061: the other loop sees every change
			w.Errorf("OBS-061: the other loop was told %q", o.story())
		}
	})
	obs(t, "OB-56/stale", setup{}, func(w *world) {
		o := w.observe(&fitz.ObserveOptions{ChangeBuffer: 1}).ready()
		started, resume := make(chan struct{}), make(chan struct{})
		var kinds []fitz.ChangeKind
		var group sync.WaitGroup
		group.Go(func() {
			for c, err := range o.Changes(context.Background()) {
				if err != nil {
					return
				}
				kinds = append(kinds, c.Kind)
				if len(kinds) == 1 {
					close(started)
					<-resume
				}
				if len(kinds) == 3 {
					return
				}
			}
		})
		<-started
		w.take("a")
		w.rest(coalesce)
		w.net.Refuse(true)
		w.net.Cut()
		synctest.Wait()
		close(resume)
		group.Wait()
		if got := fmt.Sprint(kinds); got != "[reset stale reset]" {
			w.Errorf("told %s", got)
		}
		w.net.Refuse(false)
	})
	var failures atomic.Int64
	hooks := fitz.WithHooks(fitz.Hooks{Event: func(e fitz.Event) {
		if e.Name == fitz.EventObserverConsumerFailed && e.Route == selector {
			failures.Add(1)
		}
	}})
	obs(t, "OBS-062", setup{client: []fitz.Option{hooks}}, func(w *world) {
		failures.Store(0)
		o := w.observe(nil).ready().forget()
		func() {
			defer func() {
				if recover() == nil {
					w.Error("the panic was swallowed")
				}
			}()
			for range o.Changes(context.Background()) {
				panic("consumer")
			}
		}()
		if failures.Load() != 1 {
			w.Errorf("OB-57: told the hooks %d times", failures.Load())
		}
		w.take("a")
		w.rest(coalesce)
		o.told("added(a)")
	})
	obs(t, "OBS-063", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready()
		w.take("b")
		w.rest(coalesce)
		for c, err := range o.Changes(context.Background()) {
			if err != nil || c.Kind != fitz.InventoryReset || c.Inventory.Len() != 2 {
				w.Errorf("%+v, %v", c, err)
			}
			break
		}
	})
	obs(t, "OB-55/consumers", setup{labels: true}, func(w *world) {
		o := w.observe(nil).ready() // one loop
		ctx, cancel := context.WithCancel(context.Background())
		var group sync.WaitGroup
		for range bounds.ObsConsumersMax - 1 {
			group.Go(func() {
				for range o.Changes(ctx) {
				}
			})
		}
		synctest.Wait()
		for _, err := range o.Changes(ctx) {
			if !isCode(err, fitz.CodeConfigInvalid) {
				w.Errorf("one loop too many: %v", err)
			}
		}
		cancel()
		group.Wait()
	})
	obs(t, "OB-55/cancelled", setup{}, func(w *world) {
		o := w.observe(nil).ready()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		var last error
		for _, err := range o.Changes(ctx) {
			last = err
		}
		if !errors.Is(last, context.DeadlineExceeded) {
			w.Errorf("ended with %v", last)
		}
	})
	obs(t, "OBS-065", setup{}, func(w *world) {
		o := w.observe(nil).ready()
		held := map[int]bool{}
		for i := range 400 {
			n := i * i % 37
			if held[n] {
				w.free(fmt.Sprint("r", n))
			} else {
				w.take(fmt.Sprint("r", n))
			}
			held[n] = !held[n]
			switch {
			case i%97 == 0:
				w.net.Cut()
			case i%50 == 0:
				w.rest(10 * time.Second)
				o.agrees()
			default:
				time.Sleep(time.Duration(i%40) * time.Millisecond)
			}
		}
		w.rest(10 * time.Second)
		o.agrees()
	})
	obs(t, "OBS-066", setup{}, func(w *world) {
		o := w.observe(&fitz.ObserveOptions{ChangeBuffer: 1}).ready()
		block := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for range o.Changes(context.Background()) {
				<-block
				return
			}
		})
		for i := range 5 {
			w.take(fmt.Sprint("r", i))
			w.rest(coalesce)
		}
		if info, err := w.query("r0"); err != nil || !info.Held {
			w.Errorf("%+v, %v", info, err)
		}
		close(block)
		group.Wait()
	})
	obs(t, "OBS-073", setup{}, func(w *world) {
		o := w.observe(nil).ready()
		for range 2 {
			if err := o.Close(); err != nil {
				w.Error(err)
			}
		}
		lists := w.lists()
		w.take("a")
		w.rest(10 * time.Minute)
		if n := w.sent(wire.TypeLeaseUnsubscribe); n != 1 || w.lists() != lists || w.subscribes() != 1 {
			w.Errorf("OB-66: %d UNSUBSCRIBE, %d LIST after close", n, w.lists()-lists)
		}
		o.is(fitz.ObserverClosed, fitz.StaleClosed)
		<-o.ended
		if o.err != nil {
			w.Errorf("changes ended with %v", o.err)
		}
		if err := o.Ready(w.Context()); !isCode(err, fitz.CodeConnClosed) {
			w.Errorf("ready after close: %v", err)
		}
		if err := o.Refresh(w.Context()); !isCode(err, fitz.CodeConnClosed) {
			w.Errorf("refresh after close: %v", err)
		}
	})
	for _, typ := range []wire.MessageType{wire.TypeLeaseSubscribe, wire.TypeLeaseList} {
		for _, recovering := range []bool{false, true} {
			obs(t, fmt.Sprintf("OBS-074/%v/recovering=%v", typ, recovering), setup{}, func(w *world) {
				w.take("a")
				o := w.observe(nil)
				if recovering {
					o.ready()
				}
				rule := w.net.Hold(once(toClient(typ)))
				if recovering {
					w.net.Cut()
				} else {
					_ = o.Close()
					o = w.observe(nil)
				}
				_ = rule.Await(w.Context(), 1)
				w.take("b")
				begin := time.Now()
				closed := make(chan struct{})
				go func() { _ = o.Close(); close(closed) }()
				w.rest(time.Second)
				rule.Remove()
				<-closed
				if d := time.Since(begin); d > bounds.ObsCloseTimeoutMs*time.Millisecond {
					w.Errorf("closed after %v", d)
				}
				w.rest(10 * time.Minute)
				o.is(fitz.ObserverClosed, fitz.StaleClosed)
				// OB-66: whatever was registered is removed, also by a SUBSCRIBE whose success nobody waited for.
				if made, removed := w.subscribes(), w.sent(wire.TypeLeaseUnsubscribe); !recovering && made != removed {
					w.Errorf("%d SUBSCRIBE, %d UNSUBSCRIBE", made, removed)
				}
				want := "absent"
				if recovering {
					want = "a"
				}
				o.shows(want)
			})
		}
	}
	obs(t, "OBS-075", setup{}, func(w *world) {
		o := w.observe(nil).ready()
		w.net.BlackHole(true)
		begin := time.Now()
		_ = o.Close()
		if d := time.Since(begin); d > bounds.ObsCloseTimeoutMs*time.Millisecond {
			w.Errorf("closed after %v", d)
		}
		w.net.BlackHole(false)
	})
	obs(t, "OBS-076", setup{}, func(w *world) {
		o := w.observe(nil).ready()
		rule := w.net.HoldAlone(toClient(wire.TypeLeaseNotify))
		w.take("a")
		_ = rule.Await(w.Context(), 1)
		_ = o.Close()
		lists := w.lists()
		rule.Remove()
		w.rest(time.Minute)
		if s := o.Status(); s.Notifications != 0 || w.lists() != lists {
			w.Errorf("%+v", s)
		}
	})
	obs(t, "OBS-077", setup{}, func(w *world) {
		rule := w.net.Hold(once(toClient(wire.TypeLeaseList)))
		o := w.observe(nil)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { time.Sleep(time.Second); cancel() }()
		if err := o.Ready(ctx); !errors.Is(err, context.Canceled) {
			w.Errorf("ready: %v", err)
		}
		rule.Remove()
		o.ready()
	})
	obs(t, "OBS-078", setup{}, func(w *world) {
		o := w.observe(nil).ready()
		rule := w.net.Hold(once(toClient(wire.TypeLeaseList)))
		results := make(chan error, 4)
		begin := time.Now()
		for range 3 {
			go func() { results <- o.Refresh(context.Background()) }()
		}
		synctest.Wait()
		_ = rule.Await(w.Context(), 1)
		lists := w.lists()
		go func() { results <- o.Refresh(context.Background()) }() // the running pass is too old for this one
		synctest.Wait()
		rule.Remove()
		for range 4 {
			if err := <-results; err != nil {
				w.Error(err)
			}
		}
		if d := time.Since(begin); d != 0 {
			w.Errorf("OB-62: the pass that follows came after %v", d)
		}
		if s := o.Status(); s.Passes != 3 || w.lists() != lists+1 {
			w.Errorf("OB-62: %+v", s)
		}
	})
	obs(t, "OBS-090", setup{}, func(w *world) {
		other := fitztest.Start(w.T)
		b := &world{T: w.T, broker: other, net: other.Network(), tokens: map[string]uint64{}, client: other.Connect(), holder: other.Holder()}
		w.take("same", "here")
		b.take("same", "there")
		one, two := w.observe(nil).ready(), b.observe(nil).ready()
		one.shows("here same")
		two.shows("same there")
	})
	obs(t, "OBS-095", setup{}, func(w *world) {
		one, two := w.observe(nil).ready(), w.observe(nil).ready()
		if w.subscribes() != 2 {
			w.Errorf("%d SUBSCRIBE", w.subscribes())
		}
		w.take("a")
		w.rest(coalesce)
		one.agrees()
		two.agrees()
		_ = one.Close()
		if n := w.sent(wire.TypeLeaseUnsubscribe); n != 0 {
			w.Errorf("OB-18: %d UNSUBSCRIBE after the first close", n)
		}
		w.take("b")
		w.rest(coalesce)
		two.agrees()
		_ = two.Close()
		if n := w.sent(wire.TypeLeaseUnsubscribe); n != 1 {
			w.Errorf("OB-18: %d UNSUBSCRIBE after the second close", n)
		}
	})
	obs(t, "OB-67", setup{}, func(w *world) {
		w.take("a")
		o := w.observe(nil).ready()
		if err := w.client.Close(); err != nil {
			w.Error(err)
		}
		o.is(fitz.ObserverClosed, fitz.StaleClosed)
		<-o.ended
		if !isCode(o.err, fitz.CodeConnClosed) {
			w.Errorf("changes ended with %v", o.err)
		}
		if _, err := w.client.Lease().Observe(selector, nil); !isCode(err, fitz.CodeConnClosed) {
			w.Errorf("observe after close: %v", err)
		}
	})
}

// OBS-070: no invalid selector of the reference reaches the wire.
func TestObserverRefusesSelectors(t *testing.T) {
	rows := reference.Rows(t, (*reference.Docs).InvalidRoutes)
	obs(t, "OBS-070", setup{}, func(w *world) {
		refused := 0
		for _, row := range rows {
			if row.Use != reference.Pattern || row.Domain != "lease" {
				continue
			}
			refused++
			if _, err := w.client.Lease().Observe(row.Text, nil); !isCode(err, fitz.CodeConfigInvalid) {
				w.Errorf("%s %q: %v", row.ID, row.Text, err)
			}
			for _, err := range w.client.Lease().List(row.Text, nil).All(w.Context()) {
				if !isCode(err, fitz.CodeConfigInvalid) {
					w.Errorf("list %s %q: %v", row.ID, row.Text, err)
				}
			}
		}
		if refused == 0 || w.subscribes()+w.lists() != 0 {
			w.Errorf("%d selectors, %d SUBSCRIBE, %d LIST", refused, w.subscribes(), w.lists())
		}
	})
}

// OBS-071: every option just outside of its range is refused, and at its ends accepted (OB-04).
func TestObserverRefusesOptions(t *testing.T) {
	bad := map[string]fitz.ObserveOptions{
		"expected_ttl below":     {ExpectedTTL: time.Second - 1},
		"expected_ttl above":     {ExpectedTTL: bounds.LeaseTTLSecsMax*time.Second + 1},
		"expected_ttl negative":  {ExpectedTTL: -1},
		"reconcile_min below":    {ReconcileMin: time.Second - 1},
		"reconcile_min above":    {ReconcileMin: time.Hour + 1, ReconcileMax: 2 * time.Hour},
		"reconcile_max below":    {ReconcileMin: 10 * time.Second, ReconcileMax: 10*time.Second - 1},
		"reconcile_max above":    {ReconcileMax: 24*time.Hour + 1},
		"reconcile_jitter below": {ReconcileJitter: -0.1},
		"reconcile_jitter above": {ReconcileJitter: 0.51},
		"page_size below":        {PageSize: -1},
		"page_size above":        {PageSize: 501},
		"change_buffer below":    {ChangeBuffer: -1},
		"change_buffer above":    {ChangeBuffer: 65_537},
		"coalesce below":         {Coalesce: -2},
		"coalesce above":         {Coalesce: time.Second + 1},
		"repair_limit below":     {RepairLimit: -1},
		"repair_limit above":     {RepairLimit: 1025},
		"max_items below":        {MaxItems: -1},
		"max_items above":        {MaxItems: 10_000_001},
		"list_timeout below":     {ListTimeout: 100*time.Millisecond - 1},
		"list_timeout above":     {ListTimeout: 10*time.Minute + 1},
	}
	good := []fitz.ObserveOptions{
		{ExpectedTTL: time.Second, ReconcileMin: time.Second, ReconcileMax: time.Second, ReconcileJitter: 1e-9, PageSize: 1, ChangeBuffer: 1,
			Coalesce: fitz.NoCoalesce, RepairLimit: 1, MaxItems: 1, ListTimeout: 100 * time.Millisecond},
		{ExpectedTTL: bounds.LeaseTTLSecsMax * time.Second, ReconcileMin: time.Hour, ReconcileMax: 24 * time.Hour, ReconcileJitter: 0.5, PageSize: 500,
			ChangeBuffer: 65_536, Coalesce: time.Second, RepairLimit: 1024, MaxItems: 10_000_000, ListTimeout: 10 * time.Minute},
	}
	obs(t, "OBS-071", setup{}, func(w *world) {
		for name, o := range bad {
			_, err := w.client.Lease().Observe(selector, &o)
			if option, _, _ := strings.Cut(name, " "); !isCode(err, fitz.CodeConfigInvalid) || !strings.Contains(err.Error(), option) {
				w.Errorf("%s: %v", name, err)
			}
		}
		if w.subscribes()+w.lists() != 0 {
			w.Errorf("%d SUBSCRIBE, %d LIST", w.subscribes(), w.lists())
		}
		for _, o := range good {
			w.observe(&o).ready()
		}
	})
}

// OBS-079: nothing of an item, a change or a snapshot leads to a lease handle or a fencing token, and none of them sends anything (L-94).
func TestObserverItemsAreData(t *testing.T) {
	forbidden := map[reflect.Type]bool{
		reflect.TypeFor[fitz.Lease](): true, reflect.TypeFor[fitz.LeaseClient](): true, reflect.TypeFor[fitz.Client](): true,
		reflect.TypeFor[fitz.InventoryObserver](): true,
	}
	seen := map[reflect.Type]bool{}
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		if forbidden[typ] {
			t.Errorf("OBS-079: %s is a %v", path, typ)
		}
		if seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			if strings.Contains(m.Name, "Token") {
				t.Errorf("OBS-079: %s.%s", path, m.Name)
			}
			for j := range m.Type.NumOut() {
				walk(path+"."+m.Name, m.Type.Out(j))
			}
			for j := range m.Type.NumIn() {
				if m.Type.In(j) == reflect.TypeFor[context.Context]() {
					t.Errorf("OBS-079: %s.%s takes a context", path, m.Name)
				}
			}
		}
		switch typ.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(path, typ.Elem())
		case reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				if strings.Contains(strings.ToLower(f.Name), "token") {
					t.Errorf("OBS-079: %s.%s", path, f.Name)
				}
				if f.IsExported() {
					walk(path+"."+f.Name, f.Type)
				}
			}
		}
	}
	walk("LeaseEntry", reflect.TypeFor[fitz.LeaseEntry]())
	walk("InventoryChange", reflect.TypeFor[fitz.InventoryChange]())
	walk("Inventory", reflect.TypeFor[*fitz.Inventory]())
}

// The pager yields every lease once, page by page; one that has yielded something ends with the typed cursor error (L-69).
func TestPager(t *testing.T) {
	obs(t, "L-69", setup{}, func(w *world) {
		w.take("a", "b", "c", "d", "e")
		p := w.client.Lease().List(selector, &fitz.ListOptions{PageSize: 2})
		if w.lists() != 0 {
			w.Error("List sent something")
		}
		var names []string
		for e, err := range p.All(w.Context()) {
			if err != nil {
				w.Fatal(err)
			}
			names = append(names, strings.TrimPrefix(e.Route, at("")))
		}
		if got := strings.Join(names, " "); got != "a b c d e" || w.lists() != 3 {
			w.Errorf("%q in %d pages", got, w.lists())
		}
		var resume fitz.Cursor
		for page, err := range p.Pages(w.Context()) {
			if err != nil || len(page.Items) != 2 || page.Cursor.IsZero() {
				w.Errorf("%+v, %v", page, err)
			}
			resume = page.Cursor
			break
		}
		n := 0
		for _, err := range w.client.Lease().List(selector, &fitz.ListOptions{Cursor: resume}).All(w.Context()) {
			if err != nil {
				w.Error(err)
			}
			n++
		}
		if n != 3 {
			w.Errorf("%d leases behind the cursor", n)
		}
		// The snapshot is gone when the second page is asked for.
		lists := w.lists()
		var last error
		n = 0
		for _, err := range p.All(w.Context()) {
			n++
			if last = err; n == 2 {
				w.rest(bounds.LeaseSnapshotIdleMs*time.Millisecond + time.Second)
			}
		}
		if n != 3 || !isCode(last, fitz.CodeLeaseInvalidListCursor) || w.lists()-lists != 2 {
			w.Errorf("%d yields, %d LIST, %v", n, w.lists()-lists, last)
		}
		w.net.Edit(once(skip(1, toClient(wire.TypeLeaseList))), editList(w.T, func(m *wire.LeaseListReply) { m.Next.SnapshotID++ }))
		for _, last = range p.All(w.Context()) {
		}
		if !isCode(last, fitz.CodeProtocolViolation) {
			w.Errorf("a page of another snapshot: %v", last)
		}
		_ = p.Close()
		for _, last = range p.All(w.Context()) {
		}
		if !isCode(last, fitz.CodeConnClosed) {
			w.Errorf("after close: %v", last)
		}
	})
}
