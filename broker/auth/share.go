package auth

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"weak"
)

// shared makes sessions with equal permissions use one Access. A fleet shows tokens that differ in their subject and their times only,
// and compiled permissions are larger than the token that they come from. An Access that no session uses any more is not kept.
type shared struct {
	mu    sync.Mutex
	known map[digest]weak.Pointer[Access]
	sweep int // entries at which those that are gone are looked for
}

// sweepFirst is how many entries are never looked through.
const sweepFirst = 64

// digest stands for a family and its grants.
type digest [sha256.Size]byte

func digestOf(family uint32, grants []Grant) digest {
	hash := sha256.New()
	var head [9]byte
	binary.BigEndian.PutUint32(head[:], family)
	hash.Write(head[:4])
	for _, g := range grants {
		text := g.Pattern()
		binary.BigEndian.PutUint64(head[:], uint64(len(text)))
		head[8] = byte(g.rights)
		hash.Write(head[:])
		hash.Write([]byte(text))
	}
	return digest(hash.Sum(nil))
}

// access returns the Access of a family and grants.
func (s *shared) access(family uint32, grants []Grant) *Access {
	key := digestOf(family, grants)
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.known[key].Value(); known != nil {
		return known
	}
	if len(s.known) >= s.sweep {
		s.forget()
	}
	made := NewAccess(family, grants)
	s.known[key] = weak.Make(made)
	return made
}

// forget drops what is gone. The next time is when as many again have come, so that it costs each of them the same.
func (s *shared) forget() {
	if s.known == nil {
		s.known = map[digest]weak.Pointer[Access]{}
	}
	for key, pointer := range s.known {
		if pointer.Value() == nil {
			delete(s.known, key)
		}
	}
	s.sweep = max(sweepFirst, 2*len(s.known))
}
