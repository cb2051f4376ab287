package port

import (
	"container/heap"
	"time"
)

// entry is one pending call.
type entry struct {
	at    time.Duration
	order uint64 // of two calls at the same instant the older one comes first
	f     func()
	index int // in the schedule; -1: not pending
}

// schedule holds pending calls, the earliest first.
type schedule struct {
	entries []*entry
	count   uint64
}

func (s *schedule) add(at time.Duration, f func()) *entry {
	s.count++
	e := &entry{at: at, order: s.count, f: f}
	heap.Push((*entryHeap)(s), e)
	return e
}

// remove takes an entry out. False: it was not pending any more.
func (s *schedule) remove(e *entry) bool {
	if e.index < 0 {
		return false
	}
	heap.Remove((*entryHeap)(s), e.index)
	return true
}

// next returns the instant of the earliest call.
func (s *schedule) next() (time.Duration, bool) {
	if len(s.entries) == 0 {
		return 0, false
	}
	return s.entries[0].at, true
}

// take removes and returns the earliest call that is due at now, nil when none is.
func (s *schedule) take(now time.Duration) *entry {
	if len(s.entries) == 0 || s.entries[0].at > now {
		return nil
	}
	return heap.Pop((*entryHeap)(s)).(*entry)
}

// entryHeap implements heap.Interface.
type entryHeap schedule

func (h *entryHeap) Len() int { return len(h.entries) }

func (h *entryHeap) Less(i, j int) bool {
	a, b := h.entries[i], h.entries[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

func (h *entryHeap) Swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	h.entries[i].index, h.entries[j].index = i, j
}

func (h *entryHeap) Push(x any) {
	e := x.(*entry)
	e.index = len(h.entries)
	h.entries = append(h.entries, e)
}

func (h *entryHeap) Pop() any {
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries[last] = nil
	h.entries = h.entries[:last]
	e.index = -1
	return e
}
