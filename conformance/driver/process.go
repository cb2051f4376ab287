package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// Program is a driver that is started as a process.
type Program struct {
	Args []string // program and its arguments
	Env  []string // added to the environment of the runner
	Dir  string
}

// Start starts a driver in a process group of its own and waits for its hello. The error is a *Fault.
func Start(ctx context.Context, p Program, limits Limits) (*Driver, error) {
	if len(p.Args) == 0 {
		return nil, fault(FaultStart, "no program")
	}
	ours, theirs, err := pipes()
	if err != nil {
		return nil, fault(FaultStart, "%v", err)
	}
	cmd := exec.Command(p.Args[0], p.Args[1:]...)
	cmd.Dir, cmd.Env = p.Dir, append(os.Environ(), p.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs[0], theirs[1], theirs[2]
	ownGroup(cmd)
	err = cmd.Start()
	closeAll(theirs[:])
	if err != nil {
		closeAll(ours[:])
		return nil, fault(FaultStart, "%v", err)
	}
	exited, over := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(over)
		exited <- exitCode(cmd.Wait())
	}()
	return begin(ctx, ends{
		in: ours[0], out: ours[1], err: ours[2], exited: exited,
		kill:   func() { killGroup(cmd.Process.Pid, cmd.Process) },
		orphan: func() bool { return groupAlive(cmd.Process.Pid) },
		wait:   func() { <-over },
		pid:    cmd.Process.Pid,
		grace:  time.Second,
	}, limits)
}

func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	return 128 // ended by a signal
}

// Main is a driver as a function: the body of its program. It must return when ctx ends or its input ends; it returns its exit code.
type Main func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) int

// Run runs a driver within this process over the same pipes, so that the runner can be tested without starting programs.
func Run(ctx context.Context, main Main, limits Limits) (*Driver, error) {
	ours, theirs, err := pipes()
	if err != nil {
		return nil, fault(FaultStart, "%v", err)
	}
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	exited, over := make(chan int, 1), make(chan struct{})
	go func() {
		defer close(over)
		code := main(inner, theirs[0], theirs[1], theirs[2])
		closeAll(theirs[:])
		exited <- code
	}()
	var once sync.Once
	return begin(ctx, ends{
		in: ours[0], out: ours[1], err: ours[2], exited: exited,
		kill:   func() { once.Do(func() { cancel(); _ = theirs[0].Close() }) },
		orphan: func() bool { return false },
		wait:   func() { <-over },
		grace:  time.Second,
	}, limits)
}

// String is the program as a command line.
func (p Program) String() string { return fmt.Sprintf("%q", p.Args) }
