//go:build unix

package job

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported says whether commands can be run on this platform.
const Supported = true

// SignalNumber returns the number of a signal.
func SignalNumber(s os.Signal) int {
	if n, ok := s.(syscall.Signal); ok {
		return int(n)
	}
	return 0
}

// Forwarded are the signals that a caller passes on to the command.
var Forwarded = []os.Signal{unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}

// Job is one running command.
type Job struct {
	options  Options
	pid      int // of the command and of its group
	terminal *terminal
	exited   chan struct{} // the command ended; its group may still have members
	reap     chan struct{} // its number may be used by others from now on
	done     chan struct{}
	status   Status

	mu     sync.Mutex
	reaped bool
}

// Start starts the command. The error is that of the operating system.
func Start(o Options) (*Job, error) {
	j := &Job{
		options: o, terminal: controllingTerminal(o.Stdin),
		exited: make(chan struct{}), reap: make(chan struct{}), done: make(chan struct{}),
	}
	started := make(chan error)
	go j.run(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return j, nil
}

// run starts the command and waits for it on one thread of its own: the death signal of Linux is tied to the thread that started the
// command, so that thread must live as long as this process does.
func (j *Job) run(started chan<- error) {
	runtime.LockOSThread() // for ever: the thread ends with the goroutine
	command := j.command()
	if err := command.Start(); err != nil {
		started <- err
		return
	}
	j.pid = command.Process.Pid
	started <- nil
	defer close(j.done)
	defer func() { _ = command.Process.Release() }()
	w := waiter{pid: j.pid}
	for {
		stopped, err := w.change()
		if err != nil || !stopped {
			break
		}
		j.onStop()
	}
	j.terminal.takeBack()
	close(j.exited)
	<-j.reap
	j.finish(w.reap())
}

func (j *Job) command() *exec.Cmd {
	command := &exec.Cmd{
		Path: j.options.Argv[0], Args: j.options.Argv, Env: j.options.Env,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if j.options.Stdin != nil {
		command.Stdin = j.options.Stdin
	}
	if j.options.Stdout != nil {
		command.Stdout = j.options.Stdout
	}
	if j.options.Stderr != nil {
		command.Stderr = j.options.Stderr
	}
	killWithParent(command.SysProcAttr)
	if j.terminal.inForeground() {
		command.SysProcAttr.Foreground = true
		command.SysProcAttr.Ctty = j.terminal.fd
	}
	return command
}

func (j *Job) finish(status Status) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reaped = true
	j.status = status
}

// Exited returns a channel that is closed when the command has ended. Its group still exists as far as Signal and Kill are concerned,
// until Wait is called.
func (j *Job) Exited() <-chan struct{} { return j.exited }

// Wait waits for the end of the command and returns how it ended.
func (j *Job) Wait() Status {
	<-j.exited
	j.mu.Lock()
	select {
	case <-j.reap:
	default:
		close(j.reap)
	}
	j.mu.Unlock()
	<-j.done
	return j.status
}

// Signal sends a signal to every process of the group. A group that has ended is no error.
func (j *Job) Signal(s os.Signal) error {
	number, ok := s.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v cannot be sent", s)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.reaped { // the number may belong to somebody else by now
		return nil
	}
	err := unix.Kill(-j.pid, number)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EPERM) { // EPERM: only the ended command is left, on some systems
		return nil
	}
	return err
}

// Terminate asks the group to end: SIGTERM, and SIGCONT in case that it is stopped.
func (j *Job) Terminate() error {
	return errors.Join(j.Signal(unix.SIGTERM), j.Signal(unix.SIGCONT))
}

// Kill ends the group at once.
func (j *Job) Kill() error { return j.Signal(unix.SIGKILL) }

// onStop does for a command that was stopped from the terminal what a shell expects of this process: it stops, too, and what it does
// when it is continued depends on Options.Resume.
func (j *Job) onStop() {
	if j.terminal == nil {
		return // somebody stopped the command on purpose
	}
	j.terminal.takeBack()
	stopSelf()
	if j.options.Resume != nil && !j.options.Resume() {
		return
	}
	if j.terminal.inForeground() {
		j.terminal.give(j.pid)
	}
	_ = j.Signal(unix.SIGCONT)
}

// stopSelf stops the whole group of this process, as the terminal would have done, and returns when it is continued.
func stopSelf() {
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, unix.SIGCONT)
	defer signal.Stop(continued)
	if unix.Kill(0, unix.SIGSTOP) == nil {
		<-continued
	}
}

// terminal is the controlling terminal of this process. All methods of a nil terminal do nothing.
type terminal struct {
	fd   int
	file *os.File
	own  int // process group of this process
	gave bool
}

// controllingTerminal returns the terminal that the command would read from, or nil.
func controllingTerminal(stdin *os.File) *terminal {
	if stdin == nil {
		return nil
	}
	fd := int(stdin.Fd())
	if _, err := foreground(fd); err != nil {
		return nil // no terminal, or not ours
	}
	return &terminal{fd: fd, file: stdin, own: unix.Getpgrp()}
}

// inForeground reports whether this process may read from the terminal.
func (t *terminal) inForeground() bool {
	if t == nil {
		return false
	}
	group, err := foreground(t.fd)
	t.gave = t.gave || err == nil && group == t.own
	return err == nil && group == t.own
}

// give lets a process group read from the terminal.
func (t *terminal) give(group int) {
	if t == nil {
		return
	}
	// Only a foreground process may set the group; any other is stopped by SIGTTOU unless it ignores it.
	signal.Ignore(unix.SIGTTOU)
	defer signal.Reset(unix.SIGTTOU)
	_ = setForeground(t.fd, group) // the terminal may be gone; the command finds out by itself
}

// takeBack makes this process the one that reads, if it was before.
func (t *terminal) takeBack() {
	if t != nil && t.gave {
		t.give(t.own)
	}
}

func foreground(fd int) (int, error) { return unix.IoctlGetInt(fd, unix.TIOCGPGRP) }

func setForeground(fd, group int) error { return unix.IoctlSetPointerInt(fd, unix.TIOCSPGRP, group) }

func statusOf(status unix.WaitStatus) Status {
	if status.Signaled() {
		return Status{Signal: status.Signal()}
	}
	return Status{Code: status.ExitStatus()}
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
