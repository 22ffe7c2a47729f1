package embed

import (
	"fmt"
	"strings"
	"sync/atomic"
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

	process *proc.Process
	closing atomic.Bool
	err     chan error
}

// Server has the methods that the tests call on the server itself.
type Server struct {
	etcd    *Etcd
	cluster Cluster
}

// Cluster returns the members.
type Cluster struct{ clientURLs []string }

// StartEtcd runs a server and returns when it serves clients.
func StartEtcd(c *Config) (*Etcd, error) {
	path, err := proc.Build(proc.Subject())
	if err != nil {
		return nil, err
	}
	process, err := proc.Launch(append([]string{path}, c.commandLine()...), nil)
	if err != nil {
		return nil, err
	}
	e := &Etcd{process: process, err: make(chan error, 1)}
	e.Server = &Server{etcd: e}
	for _, u := range c.AdvertiseClientUrls {
		e.Server.cluster.clientURLs = append(e.Server.cluster.clientURLs, u.String())
	}
	go e.report()
	select {
	case <-process.Log().Wait(ready):
		return e, nil
	case <-process.Exited():
		return nil, fmt.Errorf("%s ended before it was ready: %s\n%s", path, process.State(),
			process.Log().Tail(30))
	case <-time.After(startTimeout):
		e.Close()
		return nil, fmt.Errorf("%s is not ready after %s:\n%s", path, startTimeout,
			process.Log().Tail(30))
	}
}

// report waits for the end of the process and reports a failure.
func (e *Etcd) report() {
	<-e.process.Exited()
	log := e.process.Log()
	if strings.Contains(log.String(), "panic:") || !e.closing.Load() {
		e.err <- fmt.Errorf("the server ended: %s\n%s", e.process.State(), log.Tail(50))
	}
	close(e.err)
}

// Close kills the process and returns when it is gone.
func (e *Etcd) Close() {
	e.closing.Store(true)
	e.process.Kill()
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
