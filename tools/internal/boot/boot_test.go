package boot

import "testing"

func TestSystemGoesForward(t *testing.T) {
	a := System()
	b := System()
	if a <= 0 || b < a {
		t.Fatalf("%v, then %v", a, b)
	}
}
