package proc

import (
	"os"
	"os/exec"
	"syscall"
)

// Process is a program that was started. Its methods may be called by any goroutine.
type Process struct {
	cmd    *exec.Cmd
	log    *Log
	exited chan struct{}
}

// Launch starts a program, with env added to this process's environment, and collects what it
// writes.
func Launch(args, env []string) (*Process, error) {
	p := &Process{cmd: exec.Command(args[0], args[1:]...), log: &Log{}, exited: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	// If this process dies, the kernel kills the started process as well. With a process group,
	// Kill also reaches the children of a wrapper.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

// Kill ends the process with SIGKILL and returns when it has exited. It has no effect on a process
// that has exited already.
func (p *Process) Kill() {
	select {
	case <-p.exited:
		return
	default:
	}
	_ = syscall.Kill(-p.Pid(), syscall.SIGKILL)
	<-p.exited
}

// Signal sends a signal to the process.
func (p *Process) Signal(sig syscall.Signal) error { return p.cmd.Process.Signal(sig) }

// Exited returns a channel that is closed when the process has exited.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Code returns the exit code; the process must have exited.
func (p *Process) Code() int { return p.cmd.ProcessState.ExitCode() }

// State describes how the process ended; it must have exited.
func (p *Process) State() string { return p.cmd.ProcessState.String() }

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Log returns the output.
func (p *Process) Log() *Log { return p.log }
