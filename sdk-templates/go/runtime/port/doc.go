// Package port holds what the engines of a client take from the outside: time, random numbers and somebody who watches. All of it can be
// replaced, so that an engine is tested without waiting, sockets or luck.
package port
