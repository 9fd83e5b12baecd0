//go:build unix

package main

import (
	"os"
	"os/exec"
	"syscall"
)

const (
	termSignal = syscall.SIGTERM
	killSignal = syscall.SIGKILL
)

// ownGroup starts the command in a process group of its own.
func ownGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// signalGroup signals the process group that p leads or led. Its number is nobody else's while one of
// the group lives.
func signalGroup(p *os.Process, s syscall.Signal) { _ = syscall.Kill(-p.Pid, s) }

// groupLives reports whether any process of the group is left.
func groupLives(p *os.Process) bool { return syscall.Kill(-p.Pid, 0) != syscall.ESRCH }

// exitStatus is a command's exit code as a shell has it.
func exitStatus(e *exec.ExitError) int {
	if s, ok := e.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return e.ExitCode()
}
