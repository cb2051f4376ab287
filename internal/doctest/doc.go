// Package doctest keeps documents true: it takes the code blocks out of Markdown, compiles and runs them, and checks commands.
//
// A block of Go is marked
//
//	```go        compiled
//	```go run    compiled, and run against a live broker
//
// and has one of three forms:
//
//   - It begins with a package clause: a file. Run means go run.
//   - It is a list of declarations: a file, to which package clause and imports are added. Run means go test.
//   - Otherwise it is the body of a function with the parameters ctx (a context), client (a connected client), lease (held by that client), work
//     and write (what a program does under a lease) that returns an error, which is nil at the end of the block. Run means to call it.
//
// Imports are added for the names of Imports that a block uses. Blocks are compiled in a module of their own, as a
// user would, with the packages that this module stands on and without any network. Positions in messages are those of the document.
package doctest
