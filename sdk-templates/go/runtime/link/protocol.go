package link

import "time"

// Class says what a received record is to the receiving side.
type Class uint8

// The classes of records.
const (
	Unknown Class = iota // no such number: ignored and counted (W-05)
	Reply                // answers a request of the same number
	Push                 // unsolicited; handed to Options.OnPush, never matched with a request (W-58)
	Control              // session management; one of Types, or not for this side
)

// Types holds the numbers of the control messages that a session needs.
type Types struct {
	Connect, Hello, ClientHello uint16
	LabelRequest, LabelReply    uint16 // stand in front of the record that they label
	Ping, Pong                  uint16
	Cancel, Cancelled           uint16
}

// Capabilities holds the capability bits that change how a session behaves.
type Capabilities struct {
	Labels    uint32 // requests are labelled
	Lifecycle uint32 // heartbeat, cancellation and the client's own hello
	Late      uint32 // bits that a hello is still honoured for when it comes after the settle time (C-60)
}

// Hello is what a session needs to know of the hello of the peer.
type Hello struct {
	Capabilities uint32
	MaxFrame     int64         // largest transport message in bytes that the peer accepts; 0 when not announced
	Heartbeat    time.Duration // 0 when the peer wants none
	Detail       any           // the decoded message, for the layer above
}

// Limits bounds what one session keeps and how long it waits. All of them must be positive.
type Limits struct {
	FrameBytes   int64         // largest transport message that is received
	RecordValue  int           // largest value of one record that is sent
	InFlight     int           // requests sent and not answered
	Labels       int           // labels in use, requests that wait in line included
	Queue        int           // requests that wait to be sent
	QueueBytes   int64         // value bytes of those
	Abandoned    int           // given-up requests whose last reply is outstanding (W-58)
	HTTPHeader   int64         // bytes of the response head of a WebSocket upgrade
	Connect      time.Duration // opening a connection, handshake included
	Settle       time.Duration // silence after connecting that counts as an open session (C-60)
	Request      time.Duration // one request, time in line not counted
	Heartbeat    time.Duration // liveness probe of a session without announced heartbeat (C-61)
	PeerSilence  time.Duration // at the heartbeat above; grows and shrinks with the announced one (W-66)
	CloseTimeout time.Duration // Close returns by then
}

// Protocol is everything that a Conn must be told about the protocol that it speaks. Generated code makes one; it is never changed
// while it is used. Append functions append the value of a message, not its record header. Functions must be safe for concurrent use.
type Protocol struct {
	Scheme        string // URL scheme that means TCP, besides "tcp"
	TCPPort       string // used when an address names no port
	WebSocketPort string
	WebSocketPath string

	Types        Types
	Capabilities Capabilities
	Limits       Limits

	// AppendRecord appends one record with its header.
	AppendRecord func(dst []byte, typ uint16, value []byte) []byte
	// CheckRecords checks the boundaries and the number of all records of a transport message (W-03).
	CheckRecords func(payload []byte) error
	// NextRecord cuts the first record off.
	NextRecord func(payload []byte) (typ uint16, value, rest []byte, err error)
	// Class says what a received record of that number is.
	Class func(typ uint16) Class
	// Final reports whether no further reply of the same request follows this one. It must accept any bytes.
	Final func(typ uint16, value []byte) bool

	AppendConnect     func(dst []byte, token string) ([]byte, error)
	DecodeHello       func(value []byte) (Hello, error)
	AppendClientHello func(dst []byte, announced uint32) ([]byte, error)
	AppendLabel       func(dst []byte, label uint64) ([]byte, error)
	DecodeLabel       func(value []byte) (uint64, error)
	AppendNonce       func(dst []byte, nonce uint64) ([]byte, error) // PING and PONG
	DecodeNonce       func(value []byte) (uint64, error)
	AppendCancel      func(dst []byte, label uint64) ([]byte, error)
	DecodeCancelled   func(value []byte) (label uint64, err error)
}

// WithDefaults returns l with every limit that is not positive replaced by that of d.
func (l Limits) WithDefaults(d Limits) Limits {
	set := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	setInt := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	setTime := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	set(&l.FrameBytes, d.FrameBytes)
	setInt(&l.RecordValue, d.RecordValue)
	setInt(&l.InFlight, d.InFlight)
	setInt(&l.Labels, d.Labels)
	setInt(&l.Queue, d.Queue)
	set(&l.QueueBytes, d.QueueBytes)
	setInt(&l.Abandoned, d.Abandoned)
	set(&l.HTTPHeader, d.HTTPHeader)
	setTime(&l.Connect, d.Connect)
	setTime(&l.Settle, d.Settle)
	setTime(&l.Request, d.Request)
	setTime(&l.Heartbeat, d.Heartbeat)
	setTime(&l.PeerSilence, d.PeerSilence)
	setTime(&l.CloseTimeout, d.CloseTimeout)
	return l
}
