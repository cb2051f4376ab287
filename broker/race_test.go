//go:build race

package broker_test

// memoryFactor is how much more memory the race detector makes everything take.
const memoryFactor = 2
