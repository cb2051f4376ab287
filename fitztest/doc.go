// Package fitztest is a broker in memory for tests: the real broker, served over connections that never leave the process, with faults that a
// test can switch on and off.
//
//	synctest.Test(t, func(t *testing.T) {
//		broker := fitztest.Start(t)
//		client := broker.Connect()
//		...
//	})
//
// Nothing in it uses a socket or the clock of the machine directly, so that a broker, its connections and its clients can live in a
// testing/synctest bubble: a lease of an hour then expires as soon as every goroutine of the test waits for it. Outside of a bubble
// WithManualClock gives the broker a clock that moves only in Broker.Advance.
//
// Broker.Network is what stands between Broker.Dial and the broker. It can cut connections, swallow what is sent, stop reading, and hold,
// drop, repeat or change single frames by message number and direction. Broker.Holder is another client, which no fault reaches.
// WithWebSocket makes a broker that is reached through WebSocket, with the same faults.
//
// WithTokens adds listeners that ask for tokens, and Broker.Token and Broker.Mint make tokens, good and bad ones, of two families. A program that
// gets its token from somewhere is given one of the broker:
//
//	broker := fitztest.Start(t, fitztest.WithTokens())
//	token := broker.Mint(fitztest.Claims{Permissions: []string{"lease://acme/**#read"}, Expires: time.Minute})
//	client := broker.ConnectTo(broker.TokenURL(), fitz.WithToken(token))
//	...
//	time.Sleep(time.Minute) // of the bubble: the token has expired, the session stays
//	broker.Network().Cut()  // and the client ends with auth.rejected when it comes back
//
// WithTLS and WithClientCertificates secure the addresses of a broker with certificates of its own.
//
// Peer is a broker whose answers a test writes by hand, for what a real one never says.
package fitztest
