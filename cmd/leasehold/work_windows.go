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

func ownGroup(*exec.Cmd) {}

// signalGroup ends the process itself: there is neither a group nor a polite way.
func signalGroup(p *os.Process, _ syscall.Signal) { _ = p.Kill() }

func groupLives(*os.Process) bool { return false }

func exitStatus(e *exec.ExitError) int { return e.ExitCode() }
