package proxy

import (
	"fmt"
	"slices"

	"github.com/fitzwire/fitz/conformance/internal/stream"
	"github.com/fitzwire/fitz/conformance/oracle"
	"github.com/fitzwire/fitz/conformance/trace"
)

// message lets the rules at a transport message. When none applies it goes on byte by byte as it came; else each of its frames goes on its own.
// The lock is held.
func (f *flow) message(piece stream.Piece) {
	p := f.conn.proxy
	entries := trace.Split(p.codec, f.dir, piece.Payload)
	group := p.log.Group()
	refs, plans, touched := make([]trace.Ref, len(entries)), make([]plan, len(entries)), false
	for i := range entries {
		e := &entries[i]
		e.Conn, e.Group, e.Fate = f.conn.number, group, trace.Waiting
		refs[i] = p.log.Add(*e)
		entries[i] = p.log.Get(refs[i])
	}
	if f.conn.reject && f.dir == oracle.Up {
		f.refuseToken(refs)
		return
	}
	for i, e := range entries {
		plans[i] = f.plan(e)
		touched = touched || plans[i].touched
	}
	if !touched {
		push := slices.ContainsFunc(entries, func(e trace.Entry) bool { return e.Form == oracle.Push })
		f.put(&item{refs: refs, edited: make([][]byte, len(refs)), payload: piece.Payload, wire: piece.Raw, push: push})
		return
	}
	for i, e := range entries {
		f.follow(e, refs[i], plans[i])
	}
}

// plan lets every rule at a frame. The lock is held.
func (f *flow) plan(e trace.Entry) plan {
	p := f.conn.proxy
	out := plan{label: e.Label, record: e.Record, copies: 1}
	if e.Kind != trace.Frame {
		return out
	}
	if (e.Message == ping || e.Message == pong) && p.active(mute) {
		out.touched, out.fate, out.rule = true, trace.Swallowed, "mute ping"
		return out
	}
	for _, r := range p.rules {
		if out.fate != "" || !r.chooses(e) {
			continue
		}
		out.touched = true
		if out.rule != "" {
			out.rule += ", "
		}
		out.rule += r.name
		r.act(r, f, e, &out)
	}
	return out
}

// follow does what was planned for a frame. The lock is held.
func (f *flow) follow(e trace.Entry, ref trace.Ref, pl plan) {
	p := f.conn.proxy
	if pl.fate != "" {
		p.log.Settle(ref, pl.fate, pl.rule)
		for _, rec := range pl.answers {
			if err := f.other().insert(rec, pl.rule); err != nil {
				p.problem(fmt.Errorf("proxy: %s: %w", pl.rule, err))
			}
		}
		return
	}
	p.log.Touch(ref, pl.rule)
	payload := e.Bytes
	var edited []byte
	if pl.edited {
		payload = pl.record
		if pl.label != 0 {
			payload = p.codec.Label(f.dir, pl.label, pl.record)
		}
		edited = payload
	}
	for n := range pl.copies {
		if n > 0 {
			again := e
			again.Inserted, again.Rule, again.Bytes, again.Record = true, pl.rule, payload, pl.record
			ref, edited = p.log.Add(again), nil
		}
		f.queue(&item{
			refs: []trace.Ref{ref}, edited: [][]byte{edited}, payload: payload, push: e.Form == oracle.Push,
			holders: slices.Clone(pl.holders), shape: pl.shape, joins: pl.joins, merges: pl.merges,
		}, pl)
		pl.joins = 0
	}
}

// queue puts an item in its place and tells the rules that keep it. The lock is held.
func (f *flow) queue(it *item, pl plan) {
	p := f.conn.proxy
	for _, r := range it.holders {
		r.held = append(r.held, it)
		p.log.Settle(it.refs[0], trace.Held, "")
	}
	if it.joins > 0 {
		pl.joiner.joining = append(pl.joiner.joining, it)
	}
	f.put(it)
	for _, d := range pl.delays {
		d.rule.after(d.time, it)
	}
}

// insert queues a record that the other side did not send. The lock is held.
func (f *flow) insert(rec oracle.Record, rule string) error {
	p := f.conn.proxy
	payload, err := trace.Encode(p.codec, f.dir, rec)
	if err != nil {
		return err
	}
	group := p.log.Group()
	it := &item{payload: payload}
	for _, e := range trace.Split(p.codec, f.dir, payload) {
		e.Conn, e.Group, e.Fate, e.Inserted, e.Rule = f.conn.number, group, trace.Waiting, true, rule
		it.refs, it.edited = append(it.refs, p.log.Add(e)), append(it.edited, nil)
		it.push = it.push || e.Form == oracle.Push
	}
	f.put(it)
	return nil
}

// pushPassed frees what waited for a push. The lock is held.
func (f *flow) pushPassed() {
	for _, it := range f.pending {
		for _, r := range slices.Clone(it.holders) {
			if r.onPush {
				it.holders = slices.DeleteFunc(it.holders, func(other *Rule) bool { return other == r })
				r.unhold(it)
			}
		}
	}
}

// Inject delivers records that nobody sent, each in a transport message of its own, behind what waits in that direction. Connection 0 is the one
// that was opened last.
func (p *Proxy) Inject(conn int, dir oracle.Direction, records ...oracle.Record) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := p.flow(conn, dir)
	if err != nil {
		return err
	}
	for _, rec := range records {
		if err := f.insert(rec, "inject"); err != nil {
			return fmt.Errorf("proxy: inject %s: %w", rec.Message, err)
		}
	}
	return nil
}

// InjectBytes writes bytes into the stream of a connection as they are, behind what waits in that direction. Connection 0 is the one that was
// opened last.
func (p *Proxy) InjectBytes(conn int, dir oracle.Direction, wire []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := p.flow(conn, dir)
	if err != nil {
		return err
	}
	f.asIs(trace.Entry{Kind: trace.Bytes, Bytes: wire, Inserted: true, Rule: "inject"}, wire)
	return nil
}

// flow finds a direction of an open connection. The lock is held.
func (p *Proxy) flow(conn int, dir oracle.Direction) (*flow, error) {
	if conn == 0 {
		for number := range p.conns {
			conn = max(conn, number)
		}
	}
	c := p.conns[conn]
	if c == nil {
		return nil, fmt.Errorf("proxy: connection %d is not open", conn)
	}
	if dir == oracle.Up {
		return c.up, nil
	}
	return c.down, nil
}
