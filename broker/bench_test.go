package broker_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/coder/websocket"

	"github.com/fitzwire/fitz/broker/internal/rawclient"
	"github.com/fitzwire/fitz/generated/go/wire"
)

// exchange is one side of a round trip with messages of known size: it sends request and reads exactly the reply.
type exchange struct {
	nc    net.Conn
	reply []byte
}

func (e *exchange) do(tb testing.TB, request []byte) {
	if _, err := e.nc.Write(request); err != nil {
		tb.Fatal(err)
	}
	if _, err := io.ReadFull(e.nc, e.reply); err != nil {
		tb.Fatal(err)
	}
}

// frames are an ACQUIRE and a RELEASE as they stand on the wire, the offset of the token in the RELEASE, and the sizes of the
// replies.
type frames struct {
	acquire, release   []byte
	acquired, released int
}

// tokenSize is the size of a fencing token, which ends a RELEASE and the reply of an ACQUIRE.
const tokenSize = 8

func framesOf(tb testing.TB, c *rawclient.Client, headers int) frames {
	acquire := rawclient.Encode(tb, wire.TypeLeaseAcquire, &wire.LeaseAcquireRequest{Route: route, OwnerID: "w1", TTL: 30})
	release := rawclient.Encode(tb, wire.TypeLeaseRelease, &wire.LeaseReleaseRequest{Route: route, OwnerID: "w1"})
	return frames{c.Framed(acquire), c.Framed(release), headers + 5 + 10, headers + 5 + 1}
}

// BenchmarkAcquireRelease is the round trip of an ACQUIRE and of a RELEASE, beside two round trips of a bare echo with messages
// of the same sizes: the difference is the broker.
func BenchmarkAcquireRelease(b *testing.B) {
	for _, c := range []struct {
		transport string
		headers   int // bytes before the payload of a small message to the client
	}{{rawclient.TCP, 4}, {rawclient.WebSocket, 2}} {
		b.Run(c.transport+"/fitz", func(b *testing.B) {
			broker := start(b)
			client := rawclient.Dial(b, c.transport, address(broker, c.transport))
			f := framesOf(b, client, c.headers)
			acquire := exchange{client.Conn, make([]byte, f.acquired)}
			release := exchange{client.Conn, make([]byte, f.released)}
			mask := [4]byte{}
			if c.transport == rawclient.WebSocket {
				copy(mask[:], f.release[2:6])
			}
			// The token is the end of the RELEASE; on WebSocket it is masked from where it stands in the payload.
			at := len(f.release) - tokenSize
			phase := 0
			if c.transport == rawclient.WebSocket {
				phase = (at - 6) % 4
			}
			b.ReportAllocs()
			for b.Loop() {
				acquire.do(b, f.acquire)
				for i, t := range acquire.reply[len(acquire.reply)-tokenSize:] {
					f.release[at+i] = t ^ mask[(phase+i)%4]
				}
				release.do(b, f.release)
			}
			if release.reply[len(release.reply)-1] != 0 {
				b.Fatalf("release refused: %x", release.reply)
			}
		})
		b.Run(c.transport+"/echo", func(b *testing.B) {
			client := rawclient.Dial(b, c.transport, echo(b, c.transport))
			f := framesOf(b, client, c.headers)
			sizes := [2]int{len(f.acquire), len(f.release)}
			if c.transport == rawclient.WebSocket {
				sizes[0], sizes[1] = sizes[0]-4, sizes[1]-4 // a server does not mask
			}
			first := exchange{client.Conn, make([]byte, sizes[0])}
			second := exchange{client.Conn, make([]byte, sizes[1])}
			for b.Loop() {
				first.do(b, f.acquire)
				second.do(b, f.release)
			}
		})
	}
}

// echo runs a server that sends every message back, and returns its address.
func echo(tb testing.TB, transport string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = listener.Close() })
	if transport == rawclient.WebSocket {
		server := &http.Server{Handler: http.HandlerFunc(echoWebSocket)}
		tb.Cleanup(func() { _ = server.Close() })
		go func() { _ = server.Serve(listener) }()
		return listener.Addr().String()
	}
	go func() {
		for {
			nc, err := listener.Accept()
			if err != nil {
				return
			}
			go echoTCP(nc)
		}
	}()
	return listener.Addr().String()
}

func echoTCP(nc net.Conn) {
	defer func() { _ = nc.Close() }()
	buf := make([]byte, 4096)
	for {
		if _, err := io.ReadFull(nc, buf[:4]); err != nil {
			return
		}
		message := buf[:4+binary.BigEndian.Uint32(buf)]
		if _, err := io.ReadFull(nc, message[4:]); err != nil {
			return
		}
		if _, err := nc.Write(message); err != nil {
			return
		}
	}
}

func echoWebSocket(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer func() { _ = ws.CloseNow() }()
	for {
		kind, message, err := ws.Read(context.Background())
		if err != nil || ws.Write(context.Background(), kind, bytes.Clone(message)) != nil {
			return
		}
	}
}

// BenchmarkPipelined is a client that sends many requests before it reads.
func BenchmarkPipelined(b *testing.B) {
	const depth = 64
	for _, transport := range rawclient.Transports {
		b.Run(transport, func(b *testing.B) {
			broker := start(b)
			client := rawclient.Dial(b, transport, address(broker, transport))
			query := client.Framed(rawclient.Encode(b, wire.TypeLeaseQuery, &wire.LeaseQueryRequest{Route: route}))
			header := 4
			if transport == rawclient.WebSocket {
				header = 2
			}
			all := exchange{client.Conn, make([]byte, depth*(header+5+6))}
			batch := bytes.Repeat(query, depth)
			for b.Loop() {
				all.do(b, batch)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/depth, "ns/request")
		})
	}
}

// BenchmarkIdleSession is what one session costs that has connected and says nothing more.
func BenchmarkIdleSession(b *testing.B) {
	for _, c := range []struct{ transport, what string }{{rawclient.TCP, "idle"}, {rawclient.WebSocket, "websocket-idle"}} {
		b.Run(c.transport, func(b *testing.B) {
			for b.Loop() {
				broker := start(b, enough...)
				cost := attack(b, broker, c.transport, c.what, func() int { return sessions(b, broker) })
				b.ReportMetric(float64(cost)/hostilePeers, "B/session")
				broker.Close()
			}
		})
	}
}
