package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/fitzwire/fitz/generated/go/fitz"
	"github.com/fitzwire/fitz/tools/internal/display"
	"github.com/fitzwire/fitz/tools/internal/job"
)

// holding is one run of "lease acquire".
type holding struct {
	*app
	terms   terms
	command []string

	lease   *fitz.Lease // once it is held
	telling sync.Mutex

	mu      sync.Mutex
	refusal error // how the last attempt to acquire ended
}

// event is something that happened to the lease, for programs.
type event struct {
	Event        string  `json:"event"`
	Route        string  `json:"route"`
	OwnerID      string  `json:"owner_id"`
	FencingToken *uint64 `json:"fencing_token,omitempty"`
	Reason       string  `json:"reason,omitempty"`
}

func (h *holding) run() error {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, job.Forwarded...)
	defer signal.Stop(signals)
	// By default a write to a standard output or error that nobody reads any more ends the program, and the command with it. Here only
	// the write fails. Ignoring the signal would do the same, but the command would inherit that.
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, syscall.SIGPIPE)
	defer signal.Stop(unread)
	client, err := unlessSignal(h.ctx, signals, func(ctx context.Context) (*fitz.Client, error) {
		return h.connect(ctx, fitz.WithOwnerID(h.terms.owner), fitz.WithHooks(fitz.Hooks{Begin: h.begin}))
	})
	if client == nil {
		return err
	}
	var warning sync.WaitGroup
	warning.Go(func() { h.warn(client) })
	defer warning.Wait()
	defer func() { _ = client.Close() }() // the broker frees what is left
	if err != nil {
		return err
	}
	h.lease, err = unlessSignal(h.ctx, signals, func(ctx context.Context) (*fitz.Lease, error) { return h.acquire(ctx, client.Lease()) })
	if err != nil {
		return err // a grant that nobody waits for any more is released by the SDK (L-73)
	}
	token := h.lease.FencingToken()
	if err := h.tell(h.out(), "acquired", &token, ""); err != nil {
		_, failed := h.release()
		return errors.Join(err, failed)
	}
	if h.command == nil {
		return h.untilInterrupted(signals)
	}
	return h.withCommand(signals, token)
}

// acquire takes the lease, or waits for it when that was asked for.
func (h *holding) acquire(ctx context.Context, leases *fitz.LeaseClient) (*fitz.Lease, error) {
	lease, ok, err := leases.TryAcquire(ctx, h.terms.route, h.terms.ttl, nil)
	if ok || err != nil {
		return lease, err
	}
	if h.terms.wait == 0 {
		return nil, h.refused()
	}
	_ = h.tell(h.stderr, "waiting", nil, "") // only a notice
	return leases.Acquire(ctx, h.terms.route, h.terms.ttl, &fitz.AcquireOptions{Wait: h.terms.wait})
}

// begin keeps how an attempt ended: TryAcquire says that somebody else holds the lease, but not what the broker says about it.
func (h *holding) begin(ctx context.Context, _ fitz.Operation) (context.Context, func(error)) {
	return ctx, func(err error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.refusal = err
	}
}

func (h *holding) refused() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refusal
}

// unlessSignal runs f with a context that ends with the first signal that means an end. The exit code is that of a program which the
// signal ended.
func unlessSignal[T any](ctx context.Context, signals <-chan os.Signal, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := f(ctx)
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case s := <-signals:
		cancel()
		r := <-done // it returns at once, or as soon as the broker has said what became of the request
		return r.value, &failure{code: exitSignal + job.SignalNumber(s), silent: true}
	}
}

// warn tells that the broker will end the session, and the lease with it (W-67), until the client is closed.
func (h *holding) warn(client *fitz.Client) {
	for status := range client.StatusChanges(context.Background()) {
		if status.State == fitz.ConnDraining {
			_ = h.tell(h.stderr, "going_away", nil, status.Reason.Error()) // only a warning
		}
	}
}

// out is where events go: the standard output belongs to the command, if there is one.
func (h *holding) out() io.Writer {
	if h.command != nil {
		return h.stderr
	}
	return h.stdout
}

// tell reports an event. With a command, people are told only what they must know.
func (h *holding) tell(w io.Writer, name string, token *uint64, reason string) error {
	h.telling.Lock()
	defer h.telling.Unlock()
	if h.json {
		return h.printJSON(w, event{name, h.terms.route, h.terms.owner, token, reason})
	}
	route := display.Text(h.terms.route)
	line := name + " " + route + " as " + display.Text(h.terms.owner)
	switch {
	case name == "acquired" && h.command != nil, name == "released":
		return nil
	case name == "waiting":
		line = "fitz: waiting for " + route
	case name == "lost":
		line = "fitz: lost " + route + ": " + reason
	case name == "going_away":
		line = "fitz: the broker is going away: " + display.Text(reason)
	case token != nil:
		line += ", fencing token " + strconv.FormatUint(*token, 10)
	}
	_, err := io.WriteString(w, line+"\n")
	return err
}

// tellLost says why the lease is lost. The exit code says that it is, so that nothing is left to do when nobody can read it.
func (h *holding) tellLost() {
	reason := fitz.LeaseLostExpired // of a lease that could not be renewed so far
	if lost := (*fitz.LeaseLost)(nil); errors.As(h.lease.Err(), &lost) {
		reason = lost.Reason
	}
	_ = h.tell(h.stderr, "lost", nil, string(reason))
}

// untilInterrupted holds the lease without a command.
func (h *holding) untilInterrupted(signals <-chan os.Signal) error {
	select {
	case <-h.lease.Done():
	case <-signals:
	case <-h.ctx.Done():
	}
	lost, err := h.release()
	if lost {
		return ended(exitLost)
	}
	return err
}

// release gives the lease back, and reports whether it was lost before. Without an answer the end of the session does.
func (h *holding) release() (lost bool, err error) {
	failed := h.lease.Release(context.WithoutCancel(h.ctx))
	switch {
	case errors.Is(h.lease.Err(), fitz.ErrLeaseLost):
		h.tellLost()
		return true, nil
	case failed != nil:
		fmt.Fprintln(h.stderr, "fitz: release: "+display.Text(failed.Error()))
		return false, nil
	}
	return false, h.tell(h.out(), "released", nil, "")
}

// headStart is how much before the local deadline the command is gone: from the deadline on the SDK may give the lease back.
const headStart = 20 * time.Millisecond

// left is the time for which the command may run at most, until just before the local deadline (L-95), on the clock of the SDK, which runs
// on while the machine is suspended where it can. It is valid after a loss, too.
func (h *holding) left() time.Duration { return time.Until(h.lease.Deadline()) - headStart }

// held reports whether the command may run: the lease is held, and there is time to end the command before it is not (L-104).
func (h *holding) held() bool { return h.lease.Err() == nil && h.left() > h.terms.lead }

// look is how long to wait at most before looking at the clock again: timers may stand still while the machine is suspended, so that a
// long one would fire late (L-104).
const look = time.Second

// withCommand runs the command while the lease is held.
func (h *holding) withCommand(signals <-chan os.Signal, token uint64) error {
	stdout, _ := h.stdout.(*os.File)
	stderr, _ := h.stderr.(*os.File)
	lost := make(chan struct{})
	if !h.held() { // before anything relied on it
		h.tellLost()
		return ended(exitLost)
	}
	j, err := job.Start(job.Options{
		Argv: h.command, Env: h.commandEnv(token), Stdin: h.stdin, Stdout: stdout, Stderr: stderr,
		Resume: func() bool { return h.heldAgain(lost) },
	})
	if err != nil {
		_, failed := h.release()
		return errors.Join(&failure{code: exitNotRunnable, err: err}, failed)
	}
	if !h.supervise(j, signals) {
		close(lost)
		h.endCommand(j, signals)
		j.Wait()
		return ended(exitLost)
	}
	status := j.Wait()
	if lost, _ := h.release(); lost { // what fails is reported there; the status is that of the command (L-106)
		return ended(exitLost)
	}
	return ended(status.ExitCode())
}

// heldAgain reports whether a command that was stopped may go on. While the clock says no, a renewal that is under way can still save
// the lease; otherwise it counts as lost within moments.
func (h *holding) heldAgain(lost <-chan struct{}) bool {
	const again = 20 * time.Millisecond
	ticker := time.NewTicker(again)
	defer ticker.Stop()
	for !h.held() {
		select {
		case <-lost:
			return false
		case <-ticker.C:
		}
	}
	return true
}

// commandEnv is the environment of the command.
func (h *holding) commandEnv(token uint64) []string {
	return append(h.environ,
		"FITZ_ROUTE="+h.terms.route,
		"FITZ_FENCING_TOKEN="+strconv.FormatUint(token, 10),
		"FITZ_OWNER_ID="+h.terms.owner,
	)
}

// supervise passes signals on until the command has ended. False: the lease is lost, or too near to its deadline. A command whose end is
// noticed only after that counts as one that ran without the lease: nobody knows when it ended.
func (h *holding) supervise(j *job.Job, signals <-chan os.Signal) bool {
	stopped := h.ctx.Done()
	for h.held() {
		timer := time.NewTimer(min(h.left()-h.terms.lead, look))
		select {
		case <-j.Exited():
			timer.Stop()
			return h.lease.Err() == nil
		case s := <-signals:
			_ = j.Signal(s) // a group that has ended is noticed above
		case <-stopped:
			stopped = nil
			_ = j.Terminate()
		case <-h.lease.Done():
		case <-timer.C:
		}
		timer.Stop()
	}
	select {
	case <-j.Exited(): // in the last moment
		return h.lease.Err() == nil
	default:
		return false
	}
}

// endCommand ends the command because the lease is being lost: SIGTERM, and SIGKILL after the lead, at the deadline at the latest. After the
// deadline there is only SIGKILL, which also ends a stopped group without letting it run again. The signal comes before anything else.
func (h *holding) endCommand(j *job.Job, signals <-chan os.Signal) {
	over := time.Now().Add(h.terms.grace(h.left()))
	left := func() time.Duration { return min(time.Until(over), h.left()) } // the latter counts time in which the machine is suspended
	if left() > 0 {
		_ = j.Terminate()
	} else {
		_ = j.Kill()
	}
	h.tellLost()
	for left() > 0 {
		timer := time.NewTimer(min(left(), look))
		select {
		case <-j.Exited():
			over = time.Now()
		case s := <-signals:
			_ = j.Signal(s)
		case <-timer.C:
		}
		timer.Stop()
	}
	_ = j.Kill() // nothing that the command started may go on without the lease
}
