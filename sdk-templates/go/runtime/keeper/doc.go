// Package keeper takes things that one session holds for a limited time, and keeps them: it waits in line, renews in time, and says when
// something is no longer held. The signal never waits for the network: a deadline on the local clock decides (L-95, L-96).
//
// The package knows no message of a particular protocol; it talks to a Session. It never holds a lock while it does.
package keeper
