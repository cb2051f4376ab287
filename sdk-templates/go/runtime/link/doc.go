// Package link is one session of a client: a connection over TCP or WebSocket, its handshake, its labelled requests and its end.
//
// The package knows no message, number or limit of a particular protocol. What it must know arrives in a Protocol value, which
// generated code fills: how records are framed, which numbers the control messages have, and how large things may become.
//
// A Conn is made by Dial and ends once: by Close, by the peer, or by a violation of the protocol. It never reconnects by itself,
// because leases, registrations and listings end with their session (W-35, W-90); whoever wants a new session dials again.
//
// Three goroutines belong to a Conn: one reads, one writes, one keeps time. All of them end with it, and Close waits for them.
package link
