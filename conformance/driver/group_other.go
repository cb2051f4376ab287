//go:build !unix

package driver

import (
	"os"
	"os/exec"
)

func ownGroup(*exec.Cmd) {}

func killGroup(_ int, p *os.Process) { _ = p.Kill() }

func groupAlive(int) bool { return false }
