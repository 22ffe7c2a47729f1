//go:build wasip1

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"vigil/client"
	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

// write writes the key of the user of a slot as the user root, so that there are events while the
// user has no permission.
func (s *slot) write(rng *rand.Rand, over <-chan struct{}) {
	name := s.name
	for n := 0; ; n++ {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(rng.Int64N(int64(time.Second)))):
		}
		rest(s.c)
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		// any outcome is allowed
		_, _ = s.root.Put(ctx, s.key, fmt.Appendf(nil, "%s of root %d", name, n))
		cancel()
	}
}

// watch keeps a watch of the key as the user of a slot, and reports when it receives events or is
// denied.
func (s *slot) watch(over <-chan struct{}) {
	name := s.name
	cl, err := connectAs(name, s.c.Endpoints...)
	if err != nil {
		report(setup.Report{Failed: err.Error()})
		return
	}
	defer cl.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-over
		cancel()
	}()
	for ctx.Err() == nil {
		for b, err := range cl.Watch(ctx, s.key).Batches() {
			switch {
			case errors.Is(err, client.ErrPermissionDenied):
				report(setup.Report{Sight: &check.Sight{User: name, At: now(), Denied: true}})
			case err == nil && len(b.Events) > 0:
				report(setup.Report{Sight: &check.Sight{User: name, At: now()}})
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
}
