package main

import "syscall"

// ownGroup puts a child into a process group of its own, so that an interrupt from the console does not reach it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}
