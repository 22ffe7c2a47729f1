package embed

import (
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"vigil/test/proc"
)

const (
	// startTimeout bounds the waiting for a server that neither serves nor ends.
	startTimeout = 30 * time.Second
	// ready is in the line that a member logs when it serves.
	ready = "ready to serve client requests"
)

// Etcd is a running server.
type Etcd struct {
	Server *Server

	cmd     *exec.Cmd
	log     *proc.Log
	closing atomic.Bool
	exited  chan struct{}
	err     chan error
}

// Server has the methods that the tests call on the server itself.
type Server struct {
	etcd    *Etcd
	cluster Cluster
}

// Cluster tells of the members.
type Cluster struct{ clientURLs []string }

// StartEtcd runs a server and returns when it serves clients.
func StartEtcd(c *Config) (*Etcd, error) {
	path, err := proc.Build(proc.Subject())
	if err != nil {
		return nil, err
	}
	e := &Etcd{
		cmd:    exec.Command(path, c.commandLine()...),
		log:    &proc.Log{},
		exited: make(chan struct{}),
		err:    make(chan error, 1),
	}
	e.Server = &Server{etcd: e}
	for _, u := range c.AdvertiseClientUrls {
		e.Server.cluster.clientURLs = append(e.Server.cluster.clientURLs, u.String())
	}
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	// Should the test process die before it closes the server, the server dies with it.
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.cmd.Start(); err != nil {
		return nil, err
	}
	go e.wait()
	select {
	case <-e.log.Wait(ready):
		return e, nil
	case <-e.exited:
		return nil, fmt.Errorf("%s ended before it was ready: %s\n%s", path, e.cmd.ProcessState, e.log.Tail(30))
	case <-time.After(startTimeout):
		e.Close()
		return nil, fmt.Errorf("%s is not ready after %s:\n%s", path, startTimeout, e.log.Tail(30))
	}
}

// wait reports how the process ended, and ends with it.
func (e *Etcd) wait() {
	_ = e.cmd.Wait()
	if at := strings.Index(e.log.String(), "panic:"); at >= 0 || !e.closing.Load() {
		e.err <- fmt.Errorf("the server ended: %s\n%s", e.cmd.ProcessState, e.log.Tail(50))
	}
	close(e.err)
	close(e.exited)
}

// Close kills the process and returns when it is gone.
func (e *Etcd) Close() {
	e.closing.Store(true)
	_ = e.cmd.Process.Kill()
	<-e.exited
}

// Err returns a channel that has an error if the process failed, and is closed when it is gone.
func (e *Etcd) Err() <-chan error { return e.err }

// ReadyNotify returns a channel that is closed.
func (s *Server) ReadyNotify() <-chan struct{} {
	served := make(chan struct{})
	close(served)
	return served
}

// Stop is Etcd.Close.
func (s *Server) Stop() { s.etcd.Close() }

// Cluster returns what is known of the members.
func (s *Server) Cluster() *Cluster { return &s.cluster }

// ClientURLs returns where clients connect.
func (c *Cluster) ClientURLs() []string { return c.clientURLs }
