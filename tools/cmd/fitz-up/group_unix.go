//go:build unix

package main

import "syscall"

// ownGroup puts a child into a process group of its own, so that an interrupt from the terminal does not reach it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
