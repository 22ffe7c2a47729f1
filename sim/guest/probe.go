//go:build wasip1

package main

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/sim/scenario/setup"
)

const (
	// probePause is the time between two writes of a probe to a member, each over a connection of
	// its own.
	probePause   = 100 * time.Millisecond
	probeTimeout = time.Second
)

// runProbe writes to all members until a write succeeds, and reports when that was.
func runProbe(c setup.Probe) error {
	done, succeed := context.WithCancel(context.Background())
	defer succeed()
	for _, e := range c.Endpoints {
		go func() {
			for done.Err() == nil {
				go func() {
					if probe(done, e) == nil && done.Err() == nil {
						report(setup.Report{Probed: int64(now())})
						succeed()
					}
				}()
				time.Sleep(probePause)
			}
		}()
	}
	<-done.Done()
	return nil
}

func probe(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	if ctx, err = authenticated(ctx, etcdserverpb.NewAuthClient(conn)); err != nil {
		return err
	}
	_, err = etcdserverpb.NewKVClient(conn).Put(ctx, &etcdserverpb.PutRequest{Key: []byte("probe")})
	return err
}
