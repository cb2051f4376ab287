package auth

import "github.com/fitzwire/fitz/generated/go/bounds"

// ParseKeys returns the bits of the keys of a set by their ids.
func ParseKeys(text []byte) (map[string]int, error) {
	limits := bounds.Default()
	found, err := parseKeys(text, &limits)
	bits := map[string]int{}
	for id, key := range found {
		bits[id] = key.N.BitLen()
	}
	return bits, err
}

// Shared is how many different permissions an authority remembers.
func Shared(a *Authority) int {
	a.shared.mu.Lock()
	defer a.shared.mu.Unlock()
	return len(a.shared.known)
}
