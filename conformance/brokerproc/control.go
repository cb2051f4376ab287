package brokerproc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// answerMax bounds an answer of a control port.
const answerMax = 16 << 20

// Control is a connection to the control port of fitzd-test. It is safe for concurrent use; commands run one after the other. One whose ctx
// ends is given up: its answer is passed over when it comes, and later commands are answered all the same. After an error of the connection
// every later command fails.
type Control struct {
	nc      net.Conn
	answers chan said     // of the reader; closed at the end of the connection
	closed  chan struct{} // closed by Close
	end     error         // of the connection, set before answers is closed

	once sync.Once
	mu   sync.Mutex
	last uint64
}

// Dial connects to a control port.
func Dial(ctx context.Context, address string) (*Control, error) {
	var dialer net.Dialer
	nc, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	c := &Control{nc: nc, answers: make(chan said), closed: make(chan struct{})}
	go c.read()
	if _, err := c.Now(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection.
func (c *Control) Close() {
	c.once.Do(func() { close(c.closed) })
	_ = c.nc.Close()
}

// read gives out the answers until the connection ends.
func (c *Control) read() {
	defer close(c.answers)
	in := bufio.NewScanner(c.nc)
	in.Buffer(nil, answerMax)
	for in.Scan() {
		var answer said
		if c.end = json.Unmarshal(in.Bytes(), &answer); c.end != nil {
			return
		}
		select {
		case c.answers <- answer:
		case <-c.closed:
		}
	}
	if c.end = in.Err(); c.end == nil {
		c.end = errors.New("closed by the broker")
	}
}

// do sends one command and reads its answer into result.
func (c *Control) do(ctx context.Context, name string, arguments map[string]any, result any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	answer, err := c.exchange(ctx, name, arguments)
	if err != nil {
		return fmt.Errorf("control port: %s: %w", name, err)
	}
	if answer.Error != "" {
		return fmt.Errorf("control port: %s: %s", name, answer.Error)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(answer.OK, result)
}

// said is an answer.
type said struct {
	ID    uint64          `json:"id"`
	OK    json.RawMessage `json:"ok"`
	Error string          `json:"error"`
}

func (c *Control) exchange(ctx context.Context, name string, arguments map[string]any) (said, error) {
	if err := ctx.Err(); err != nil {
		return said{}, err
	}
	c.last++
	command := map[string]any{"id": c.last, "do": name}
	for key, value := range arguments {
		command[key] = value
	}
	line, err := json.Marshal(command)
	if err != nil {
		return said{}, err
	}
	if _, err := c.nc.Write(append(line, '\n')); err != nil { // commands are few and short: the socket takes them, whatever the broker does
		return said{}, err
	}
	for {
		select {
		case answer, ok := <-c.answers:
			switch {
			case !ok:
				return answer, c.end
			case answer.ID == c.last, answer.ID == 0: // 0: the line was no command to the broker, which its answer says
				return answer, nil
			case answer.ID > c.last:
				return answer, fmt.Errorf("answer %d to command %d", answer.ID, c.last)
			}
		case <-ctx.Done():
			return said{}, ctx.Err()
		}
	}
}

// Now is the time of a broker.
type Now struct {
	Elapsed time.Duration // monotonic, since the start of the broker
	Wall    time.Time
	Fired   uint64 // instants with timers that Advance passed
}

// UnmarshalJSON reads the answer of a control port.
func (n *Now) UnmarshalJSON(text []byte) error {
	var wire struct {
		NowNs int64     `json:"now_ns"`
		Wall  time.Time `json:"wall"`
		Fired uint64    `json:"fired"`
	}
	err := json.Unmarshal(text, &wire)
	*n = Now{time.Duration(wire.NowNs), wire.Wall, wire.Fired}
	return err
}

// Advance moves the time by d, in whole milliseconds. When it returns, everything that has become due is executed, in the order of
// the instants, and every frame of it is handed to its socket.
func (c *Control) Advance(ctx context.Context, d time.Duration) (Now, error) {
	var now Now
	if d%time.Millisecond != 0 {
		return now, fmt.Errorf("control port: advance: %v is not a whole number of milliseconds", d)
	}
	err := c.do(ctx, "advance", map[string]any{"ms": d.Milliseconds()}, &now)
	return now, err
}

// Now returns the time.
func (c *Control) Now(ctx context.Context) (now Now, err error) {
	err = c.do(ctx, "now", nil, &now)
	return now, err
}

// SetWall sets the time of day, which must change nothing.
func (c *Control) SetWall(ctx context.Context, at time.Time) error {
	return c.do(ctx, "wall", map[string]any{"set": at.Format(time.RFC3339Nano)}, nil)
}

// ShiftWall moves the time of day, which must change nothing.
func (c *Control) ShiftWall(ctx context.Context, by time.Duration) error {
	return c.do(ctx, "wall", map[string]any{"shift_ms": by.Milliseconds()}, nil)
}

// Settle waits until the broker has nothing to do: every record that it has read is executed and every frame is handed to its socket.
// A request counts from the moment at which the broker has read it, for which its answer is the proof.
func (c *Control) Settle(ctx context.Context) error { return c.do(ctx, "settle", nil, nil) }

// Next returns the time until the earliest timer, false without one.
func (c *Control) Next(ctx context.Context) (in time.Duration, ok bool, err error) {
	var next struct {
		NextNs *int64 `json:"next_ns"`
	}
	if err = c.do(ctx, "next", nil, &next); err != nil || next.NextNs == nil {
		return 0, false, err
	}
	return time.Duration(*next.NextNs), true, nil
}

// Lease is one held lease.
type Lease struct {
	Route             string `json:"route"`
	OwnerID           string `json:"owner_id"`
	HolderIncarnation string `json:"holder_incarnation"` // decimal
	AcquiredAt        string `json:"acquired_at"`
	ExpiresIn         uint64 `json:"expires_in"` // seconds
	Renewals          uint32 `json:"renewals"`
}

// Held returns the held leases of a family that the selector matches, sorted by route; family 0 is that of anonymous sessions. It fails
// when there are more than the control port tells.
func (c *Control) Held(ctx context.Context, selector string, family int64) ([]Lease, error) {
	arguments := map[string]any{"selector": selector}
	if family != 0 {
		arguments["family"] = family
	}
	var held struct {
		Leases []Lease `json:"leases"`
		More   bool    `json:"more"`
	}
	if err := c.do(ctx, "held", arguments, &held); err != nil {
		return nil, err
	}
	if held.More {
		return nil, fmt.Errorf("control port: held: more than %d leases", len(held.Leases))
	}
	return held.Leases, nil
}

// Stats is what a broker holds.
type Stats struct {
	Sessions      int   `json:"sessions"`
	Lingering     int   `json:"lingering"` // sessions that are over and wait for the peer to close its side
	Stalled       int   `json:"stalled"`   // sessions whose socket takes nothing
	Preauth       int   `json:"preauth"`   // connections without a first record
	Leases        int   `json:"leases"`
	Waiters       int   `json:"waiters"`
	Registrations int   `json:"registrations"`
	Snapshots     int   `json:"snapshots"`
	Timers        int   `json:"timers"`
	OutboundBytes int64 `json:"outbound_bytes"`
}

// Left says what is left when every client has gone; empty when nothing is. Timers do not count: one that finds nothing to do when it
// fires may stay set.
func (s Stats) Left() string {
	s.Timers = 0
	if s == (Stats{}) {
		return ""
	}
	text, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Stats returns what the broker holds.
func (c *Control) Stats(ctx context.Context) (stats Stats, err error) {
	err = c.do(ctx, "stats", nil, &stats)
	return stats, err
}

// Seed returns the seed of the lifetime id and the incarnation key, as a decimal string.
func (c *Control) Seed(ctx context.Context) (string, error) {
	var seed struct {
		Seed string `json:"seed"`
	}
	err := c.do(ctx, "seed", nil, &seed)
	return seed.Seed, err
}
