package link

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
)

// poisoned is a connection that ends with the error of somebody else's context.
type poisoned struct {
	net.Conn
	end chan error
}

func (p poisoned) Read(b []byte) (int, error) {
	select {
	case err := <-p.end:
		return 0, err
	default:
	}
	n, err := p.Conn.Read(b)
	select {
	case own := <-p.end:
		return 0, own
	default:
		return n, err
	}
}

// Caller cancellation is the language's own signal (errors.md section 4): a connection that ends because of another context is lost for
// everybody else, and looks like nobody's cancellation.
func TestCancellationOfOthersIsNotOurs(t *testing.T) {
	for _, foreign := range []error{context.Canceled, context.DeadlineExceeded, fmt.Errorf("websocket: %w", context.Canceled)} {
		bubble(t, func(t *testing.T) {
			near, far := net.Pipe()
			conn := poisoned{near, make(chan error, 1)}
			result := make(chan dialled, 1)
			go func() {
				c, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Dial: pipe(conn)})
				result <- dialled{c, err}
			}()
			r := newRemote(t, far)
			r.expect(text(toyConnect, ""))
			r.send(rec(toyHello, toyHelloValue(bitLabels, 0, 0)))
			d := <-result
			if d.err != nil {
				t.Fatal(d.err)
			}
			s := session{d.conn, r}
			call := s.start(t.Context(), echo("a"))
			r.expect(labelled(toyLabel, 1, text(toyEcho, "a")))
			conn.end <- foreign
			_ = far.Close()
			got := <-call
			got.wantKind(t, Lost, true)
			if isContext(got.err) || GivenUp(got.err) || !strings.Contains(got.err.Error(), foreign.Error()) {
				t.Errorf("%v counts as a cancellation of the caller", got.err)
			}
			s.close(t)
		})
		bubble(t, func(t *testing.T) {
			dial := func(context.Context, string, string) (net.Conn, error) { return nil, foreign }
			_, err := Dial(t.Context(), "toy://host", toyProtocol(), Options{Dial: dial})
			if !IsKind(err, Refused) || isContext(err) {
				t.Errorf("%v counts as a cancellation of the caller", err)
			}
		})
	}
	other := errors.New("other")
	if err := error(&Error{Kind: Lost, Err: other}); !errors.Is(err, other) {
		t.Error("a cause is not kept")
	}
}
