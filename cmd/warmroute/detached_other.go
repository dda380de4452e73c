//go:build !linux

package main

import "syscall"

// detached keeps the terminal's Ctrl-C from the child, so that the demo stops
// its parts in order.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
