package transport

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/fitzwire/fitz/broker/clock"
)

// offering is a listener at which somebody always waits to be accepted.
type offering struct{ accepted atomic.Int64 }

func (o *offering) Accept() (net.Conn, error) {
	o.accepted.Add(1)
	_, broker := net.Pipe()
	return broker, nil
}
func (o *offering) Close() error   { return nil }
func (o *offering) Addr() net.Addr { return &net.TCPAddr{} }

// W-38: at connections_max nothing is accepted, so that connections stay in the backlog of the system; one that ends makes room for
// one.
func TestNothingIsAcceptedAtTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 3
		inner := &offering{}
		l := Listen(inner, NewSlots(most), NewPreauth(clock.System(), 10, 10, nil), nil)
		served := make(chan net.Conn, 10)
		ended := make(chan error)
		go func() {
			for {
				nc, err := l.Accept()
				if err != nil {
					ended <- err
					return
				}
				served <- nc
			}
		}()
		for n := int64(most); n < most+3; n++ {
			synctest.Wait()
			if got := inner.accepted.Load(); got != n {
				t.Errorf("%d connections were accepted, want %d", got, n)
			}
			_ = (<-served).Close()
		}
		synctest.Wait()
		_ = l.Close()
		<-ended
		for len(served) > 0 {
			_ = (<-served).Close()
		}
	})
}
