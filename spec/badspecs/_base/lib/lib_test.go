package lib

import "testing"

func TestBounded(t *testing.T) { t.Log("a proof that only needs to exist") }

func FuzzBounded(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }
