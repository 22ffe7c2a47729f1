//go:build wasip1

package main

import (
	"context"
	"fmt"
	"time"

	"vigil/client"
	"vigil/sim/scenario/setup"
)

// rescue looks at a member that was started with --force-new-cluster when all members had
// everything: it must be the only member, have the data of all, and accept writes and a second
// voter, which receives the same data.
func (ch *changer) rescue() error {
	first, err := connect(ch.c.Rescued)
	if err != nil {
		return err
	}
	defer first.Close()
	alone := ch.until(func(m *setup.Members) bool {
		if len(m.List) != 1 {
			report(setup.Report{Failed: fmt.Sprintf("after --force-new-cluster there are the members %v", m.List)})
		}
		return true
	})
	if !alone {
		return fmt.Errorf("the member that was started with --force-new-cluster does not serve")
	}
	if !ch.compare(first, ch.c.Rescued, ch.c.Rev) {
		return fmt.Errorf("the member that was started with --force-new-cluster has no hash at revision %d", ch.c.Rev)
	}
	ch.impatient = time.Duration(ch.c.Impatience)
	ch.add()
	rev, err := ch.write()
	if err != nil {
		return err
	}
	for _, e := range members(ch.Client) {
		at, err := connect(e)
		if err != nil {
			return err
		}
		if !ch.compare(at, e, rev) {
			return fmt.Errorf("%s has no hash at revision %d after the rescue of the cluster", e,
				rev)
		}
	}
	report(setup.Report{Rescued: true})
	return nil
}

// compare reports the hash of a member at a revision, when it answers.
func (ch *changer) compare(at *client.Client, endpoint string, rev int64) bool {
	for int64(now()) < ch.c.Until {
		if reportHash(at, endpoint, rev) {
			return true
		}
		time.Sleep(50 * time.Millisecond)
	}
	return false
}

// write writes until a write succeeds, and returns its revision.
func (ch *changer) write() (int64, error) {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		r, err := ch.Put(ctx, "rescued", []byte("x"))
		cancel()
		switch {
		case err == nil:
			return r.Header.Revision, nil
		case int64(now()) > ch.c.Until:
			return 0, fmt.Errorf("the rescued cluster accepts no write: %w", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}
