package link

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	b := Backoff{First: 250 * time.Millisecond, Cap: 5 * time.Second, Factor: 2}
	for attempt, want := range []time.Duration{250, 500, 1000, 2000, 4000, 5000, 5000} {
		want *= time.Millisecond
		if got := b.Delay(attempt, 0); got != want/2 {
			t.Errorf("attempt %d, least: %v, want %v", attempt, got, want/2)
		}
		if got := b.Delay(attempt, 0.5); got != want*3/4 {
			t.Errorf("attempt %d, middle: %v, want %v", attempt, got, want*3/4)
		}
	}
	if got := b.Delay(1<<40, 1); got != b.Cap {
		t.Errorf("far attempt: %v", got)
	}
}
