// Package dispatch stands for generated code.
package dispatch

// DoorHandler is what a generated check looks for.
type DoorHandler interface {
}
