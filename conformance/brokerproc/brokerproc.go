// Package brokerproc runs a broker as a process of its own, for the conformance suite: it starts a command and waits until the broker
// accepts, stops, kills, pauses and restarts it at the same addresses, and talks to the control port of fitzd-test. It also attaches to
// a broker that runs elsewhere.
//
// The command gets the flags of fitzd: --tcp, --http, --admin and --addresses-file, and --control when Options.Control is set. A broker
// with other flags names placeholders in its command instead, of which each is replaced and then no flag is added: {tcp}, {http},
// {token_tcp}, {token_http}, {admin} and {control} are addresses, {addresses} is the file that the broker writes its addresses to. Without
// {addresses} the broker counts as started when it accepts at every address for clients that its command names.
//
// The command of fitzd also gets a configuration file with listeners that want tokens, beside those that do not, and with what it must
// know to verify them (Options.Tokens).
package brokerproc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Names of addresses.
const (
	TCP   = "tcp"
	HTTP  = "http" // WebSocket
	Admin = "admin"
	// TokenTCP and TokenHTTP are those of the listeners that want a token.
	TokenTCP  = "token_tcp"
	TokenHTTP = "token_http"
	control   = "control"
)

// Options say what to run.
type Options struct {
	// Command is the program and its first arguments. See the package comment.
	Command []string
	// Args are appended: settings of one scenario, such as --limit NAME=VALUE.
	Args []string
	// Env is added to the environment of this process, from which the names of settings of fitzd, FITZ_…, are taken out.
	Env []string
	// Control asks for a control port.
	Control bool
	// Tokens is what the configuration file of fitzd says about tokens, as lines of YAML, beside the listeners. Empty: there are no listeners
	// that want tokens. It has no effect on a command with placeholders.
	Tokens string
	// StartTimeout bounds a start, 10 s when it is 0.
	StartTimeout time.Duration
	// StopTimeout is the time from SIGTERM to the second one, 2 s when it is 0. SIGKILL follows hurriedTimeout later.
	StopTimeout time.Duration
	// OutputMax is how many of the last bytes of stdout and stderr together are kept, 256 KiB when it is 0.
	OutputMax int
}

// hurriedTimeout is the time from the second SIGTERM to SIGKILL. It has room for the time in which a broker waits for peers to close
// their side.
const hurriedTimeout = 2 * time.Second

// ErrAttached is returned by what needs a process when there is none.
var ErrAttached = errors.New("the broker was not started here")

// ErrNotRunning is returned by what needs a running process when it has ended.
var ErrNotRunning = errors.New("the broker does not run")

// Broker is a broker under test. It is safe for concurrent use.
type Broker struct {
	options   Options
	dir       string // of the addresses file; empty when attached
	addresses map[string]string
	output    *tail

	mu      sync.Mutex // held by Stop, Kill, Restart and Close
	process *process   // nil: none runs
	control *Control
	started time.Duration
	starts  int
}

// Attach returns a broker that runs elsewhere. addresses are by the names TCP and HTTP, either may be missing.
func Attach(addresses map[string]string) *Broker { return &Broker{addresses: addresses} }

// Start runs a broker until it accepts. When it returns an error, nothing is left; the error holds what the broker said last.
func Start(ctx context.Context, o Options) (*Broker, error) {
	if len(o.Command) == 0 {
		return nil, errors.New("no command")
	}
	o.StartTimeout = orDefault(o.StartTimeout, 10*time.Second)
	o.StopTimeout = orDefault(o.StopTimeout, 2*time.Second)
	dir, err := os.MkdirTemp("", "fitz-broker-")
	if err != nil {
		return nil, err
	}
	b := &Broker{options: o, dir: dir, output: newTail(orDefault(o.OutputMax, 256<<10))}
	for attempt := 1; ; attempt++ {
		if b.addresses, err = b.choose(); err == nil {
			err = b.start(ctx)
		}
		if err == nil {
			return b, nil
		}
		if attempt == portAttempts || !strings.Contains(err.Error(), "in use") {
			break
		}
	}
	_ = os.RemoveAll(dir)
	return nil, err
}

func orDefault[T int | time.Duration](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

// Ports are drawn from below the range from which systems take the ports of outgoing connections, so that nobody gets the port of a
// broker that is down for a moment.
const (
	firstPort    = 20_000
	lastPort     = 32_000
	portAttempts = 20
)

// choose picks free addresses.
func (b *Broker) choose() (map[string]string, error) {
	names := []string{TCP, HTTP, Admin, TokenTCP, TokenHTTP}
	if b.options.Control {
		names = append(names, control)
	}
	addresses := map[string]string{}
	for _, name := range names {
		address, err := freeAddress(addresses)
		if err != nil {
			return nil, err
		}
		addresses[name] = address
	}
	return addresses, nil
}

// freeAddress returns a loopback address at which nobody listens and that is not among those taken.
func freeAddress(taken map[string]string) (string, error) {
	var last error
	for range portAttempts {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(lastPort-firstPort)))
		socket, err := net.Listen("tcp", address)
		if last = err; err != nil {
			continue
		}
		_ = socket.Close() // nothing was accepted
		used := false
		for _, other := range taken {
			used = used || other == address
		}
		if !used {
			return address, nil
		}
	}
	return "", fmt.Errorf("no free port: %w", last)
}

// arguments returns the command line.
func (b *Broker) arguments() []string {
	replace := []string{"{addresses}", b.addressesFile()}
	for name, address := range b.addresses {
		replace = append(replace, "{"+name+"}", address)
	}
	replacer := strings.NewReplacer(replace...)
	line := make([]string, 0, len(b.options.Command)+len(b.options.Args)+10)
	replaced := false
	for _, arg := range b.options.Command {
		filled := replacer.Replace(arg)
		replaced = replaced || filled != arg
		line = append(line, filled)
	}
	if !replaced {
		for _, name := range []string{TCP, HTTP, Admin, control} {
			if address, ok := b.addresses[name]; ok {
				line = append(line, "--"+name, address)
			}
		}
		line = append(line, "--addresses-file", b.addressesFile())
		if b.options.Tokens != "" {
			line = append(line, "--config", b.configFile())
		}
	}
	return append(line, b.options.Args...)
}

// writesAddresses reports whether the broker is told where to write its addresses.
func (b *Broker) writesAddresses() bool {
	return slices.ContainsFunc(b.arguments(), func(arg string) bool { return strings.Contains(arg, b.addressesFile()) })
}

func (b *Broker) addressesFile() string { return filepath.Join(b.dir, "addresses.json") }

func (b *Broker) configFile() string { return filepath.Join(b.dir, "config.yaml") }

// writeConfig writes the file with the listeners that want tokens.
func (b *Broker) writeConfig() error {
	if b.options.Tokens == "" {
		return nil
	}
	text := fmt.Sprintf("listeners:\n  - {transport: tcp, address: %q, auth: token}\n  - {transport: websocket, address: %q, auth: token}\n",
		b.addresses[TokenTCP], b.addresses[TokenHTTP])
	return os.WriteFile(b.configFile(), []byte(text+b.options.Tokens), 0o600)
}

// start runs the command at the chosen addresses and waits until the broker accepts.
func (b *Broker) start(ctx context.Context) error {
	began := time.Now()
	if err := os.Remove(b.addressesFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := b.writeConfig(); err != nil {
		return err
	}
	line := b.arguments()
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(environment(), b.options.Env...)
	cmd.Stdout, cmd.Stderr = b.output, b.output
	p, err := run(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.options.StartTimeout)
	defer cancel()
	if err := b.await(ctx, p); err != nil {
		p.kill()
		return fmt.Errorf("%s did not start: %w\n%s", line[0], err, b.output)
	}
	if b.options.Control {
		if b.control, err = Dial(ctx, b.addresses[control]); err != nil {
			p.kill()
			return fmt.Errorf("%s has no control port: %w\n%s", line[0], err, b.output)
		}
	}
	b.process, b.started = p, time.Since(began)
	b.starts++
	return nil
}

// environment is that of this process without what would configure a broker.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "FITZ_") })
}

// lookPause is how long await waits between two looks.
const lookPause = 500 * time.Microsecond

// await waits until the broker accepts.
func (b *Broker) await(ctx context.Context, p *process) error {
	accepts := b.readAddresses
	if !b.writesAddresses() {
		accepts = b.dialOnce
	}
	for {
		ok, err := accepts()
		if ok || err != nil {
			return err
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended: %w", p.err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookPause):
		}
	}
}

// readAddresses takes over the addresses that the broker has written.
func (b *Broker) readAddresses() (bool, error) {
	text, err := os.ReadFile(b.addressesFile())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	addresses := map[string]string{}
	if err := json.Unmarshal(text, &addresses); err != nil {
		return false, fmt.Errorf("addresses file: %w", err)
	}
	if addresses[TCP] == "" && addresses[HTTP] == "" {
		return false, fmt.Errorf("addresses file without tcp and http: %q", text)
	}
	b.addresses = named(addresses)
	return true, nil
}

// named gives the listeners of the configuration file, which fitzd numbers, their names.
func named(addresses map[string]string) map[string]string {
	for i, name := range []string{TokenTCP, TokenHTTP} {
		key := fmt.Sprintf("listeners[%d]", i)
		if address, ok := addresses[key]; ok {
			addresses[name] = address
			delete(addresses, key)
		}
	}
	return addresses
}

// dialOnce reports whether the broker accepts at every address that its command names. It does not serve the others.
func (b *Broker) dialOnce() (bool, error) {
	served := 0
	for _, name := range []string{TCP, HTTP, TokenTCP, TokenHTTP} {
		if !slices.ContainsFunc(b.options.Command, func(arg string) bool { return strings.Contains(arg, "{"+name+"}") }) {
			delete(b.addresses, name)
			continue
		}
		nc, err := net.Dial("tcp", b.addresses[name])
		if err != nil {
			return false, nil // not yet
		}
		_ = nc.Close()
		served++
	}
	if served == 0 {
		return false, errors.New("the command names neither {tcp} nor {http} nor {addresses}")
	}
	return true, nil
}

// Address returns the address of that name, empty when the broker has none. It stays the same over restarts.
func (b *Broker) Address(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.addresses[name]
}

// Control returns the control port, nil when the broker has none or does not run. A restarted broker has a new one.
func (b *Broker) Control() *Control {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.control
}

// Output returns the last bytes that the broker wrote to stdout and stderr, over all its processes.
func (b *Broker) Output() string {
	if b.output == nil {
		return ""
	}
	return b.output.String()
}

// Args are the settings that it was started with.
func (b *Broker) Args() []string { return b.options.Args }

// StartTime is how long the last start took, from the fork to an accepting broker.
func (b *Broker) StartTime() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.started
}

// Starts counts how often the broker was started.
func (b *Broker) Starts() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.starts
}

// Exited is closed when the process that runs now ends, for whatever reason. It is nil without a process.
func (b *Broker) Exited() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process == nil {
		return nil
	}
	return b.process.done
}

// running returns the process. The lock is held.
func (b *Broker) running() (*process, error) {
	switch {
	case b.dir == "":
		return nil, ErrAttached
	case b.process == nil:
		return nil, ErrNotRunning
	}
	return b.process, nil
}

// Terminate sends SIGTERM, as an operator does, and does not wait. Stop or Kill go on from there.
func (b *Broker) Terminate() error { return b.signal(sigTerm) }

// Pause stops the process where it is (SIGSTOP) and waits until it stands still: its connections stay open and nothing is read or written.
func (b *Broker) Pause() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.running()
	if err != nil {
		return err
	}
	if err := p.signal(sigStop); err != nil {
		return err
	}
	return p.awaitStopped()
}

// Continue lets a paused process go on (SIGCONT).
func (b *Broker) Continue() error { return b.signal(sigCont) }

func (b *Broker) signal(s signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.running()
	if err != nil {
		return err
	}
	return p.signal(s)
}

// Stop ends the process in order: SIGTERM, another one after StopTimeout, and SIGKILL after hurriedTimeout. It reports whether the process ended
// by itself with exit code 0. ctx shortens the waiting.
func (b *Broker) Stop(ctx context.Context) (orderly bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, err := b.running()
	if err != nil {
		return false, err
	}
	_ = p.signal(sigCont) // a paused process does not notice a signal
	for _, patience := range []time.Duration{b.options.StopTimeout, hurriedTimeout} {
		_ = p.signal(sigTerm) // one that has ended needs none
		if p.awaitEnd(ctx, patience) {
			break
		}
	}
	b.gone()
	return p.err == nil, nil
}

// Kill ends the process at once (SIGKILL), with everything it has started.
func (b *Broker) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.running(); err != nil {
		return err
	}
	b.gone()
	return nil
}

// gone makes sure that nothing of the process is left. The lock is held.
func (b *Broker) gone() {
	b.process.kill()
	b.process = nil
	if b.control != nil {
		b.control.Close()
		b.control = nil
	}
}

// Restart starts the broker again at the same addresses, after Stop or Kill; a process that still runs is killed first. It is another
// broker lifetime, without memory of the one before.
func (b *Broker) Restart(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		return ErrAttached
	}
	if b.process != nil {
		b.gone()
	}
	return b.start(ctx)
}

// Close kills what runs and removes what was written. It may be called more than once. A broker that was attached goes on.
func (b *Broker) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir == "" {
		return
	}
	if b.process != nil {
		b.gone()
	}
	_ = os.RemoveAll(b.dir) // a file that is left in the temporary folder harms nobody
}

// Build builds fitzd-test, with tags on top of its own, into the folder and returns its path.
func Build(ctx context.Context, dir string, tags ...string) (string, error) {
	path := filepath.Join(dir, "fitzd-test"+executable)
	build := exec.CommandContext(ctx, "go", "build", "-tags", strings.Join(append([]string{"testclock"}, tags...), ","), "-o", path,
		"github.com/fitzwire/fitz/broker/cmd/fitzd-test")
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, text)
	}
	return path, nil
}
