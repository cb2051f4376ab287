package port

import "math/rand/v2"

// Rand returns random numbers that are uniform in [0, 1). It may be called from any goroutine.
type Rand func() float64

// SystemRand is the source of random numbers of the process.
func SystemRand() float64 { return rand.Float64() }

// Spread returns 1 plus a random part between -spread and +spread.
func (r Rand) Spread(spread float64) float64 { return 1 + spread*(2*r()-1) }
