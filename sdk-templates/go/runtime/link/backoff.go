package link

import "time"

// Backoff is a growing delay with equal jitter: half of it is fixed, half is drawn.
type Backoff struct {
	First, Cap time.Duration
	Factor     float64
}

// Delay returns the delay before attempt number attempt, counted from 0. random is uniform in [0, 1).
func (b Backoff) Delay(attempt int, random float64) time.Duration {
	delay := float64(b.First)
	for range attempt {
		if delay *= b.Factor; delay >= float64(b.Cap) {
			break
		}
	}
	delay = min(delay, float64(b.Cap))
	return time.Duration(delay/2 + random*delay/2)
}
