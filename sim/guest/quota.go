//go:build wasip1

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"vigil/client"
	"vigil/sim/scenario/setup"
)

const (
	// quotaQuiet is how long before the end of the work the quota is used up no more: space must be
	// there soon after the faults.
	quotaQuiet = 32 * time.Second
	// overrun is by how much the quota may be exceeded: by the writes of others, and by what
	// members that lag accept.
	overrun = 1 << 20
)

// useUpQuota fills the quota with keys until a write is refused, and gives the space back then: the
// members must raise the alarm NOSPACE and clear it by themselves. In the end it only gives back
// what others need.
func useUpQuota(c *setup.Client, rng *rand.Rand, all *client.Client) error {
	for goesOn(c, c.Stop-int64(quotaQuiet)) {
		if err := fill(c, rng, all); err != nil {
			return err
		}
		time.Sleep(time.Duration(rng.Int64N(int64(1500 * time.Millisecond))))
		freeQuota(c, all)
		time.Sleep(time.Duration(rng.Int64N(int64(6 * time.Second))))
	}
	for int64(now()) < c.Stop {
		freeQuota(c, all)
		time.Sleep(2 * time.Second)
	}
	return nil
}

// fill writes one key after the other until a write is refused, or the time is over.
func fill(c *setup.Client, rng *rand.Rand, all *client.Client) error {
	value := bytes.Repeat([]byte{'.'}, setup.MaxRequestBytes*3/4)
	var acked int64
	for n := 0; int64(now()) < c.Stop-int64(quotaQuiet); n++ {
		at := all
		if rng.IntN(4) == 0 { // at one member, or at a place that has none
			var err error
			if at, err = all.At(c.Endpoints[rng.IntN(len(c.Endpoints))]); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		_, err := at.Put(ctx, fmt.Sprintf("q/%d", n), value)
		cancel()
		switch {
		case errors.Is(err, client.ErrNoSpace):
			return nil
		case err != nil:
			time.Sleep(200 * time.Millisecond)
		default:
			acked += int64(len(value))
		}
		if acked > c.QuotaBytes+overrun {
			return fmt.Errorf("writes of %d bytes were acknowledged, and the quota is %d",
				acked, c.QuotaBytes)
		}
	}
	return nil
}

// freeQuota deletes what was filled and compacts, until a write that needs space is accepted.
func freeQuota(c *setup.Client, all *client.Client) {
	for n := 0; int64(now()) < c.Stop; n++ {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		if _, err := all.Delete(ctx, "q/", client.WithPrefix()); err == nil {
			if rev := received.Load(); rev > 1 {
				report(setup.Report{Compact: rev})
				_, _ = all.Compact(ctx, rev) // any outcome is allowed
			}
		}
		_, err := all.Put(ctx, "q", nil)
		if n%8 == 7 && errors.Is(err, client.ErrNoSpace) {
			clearOfRemoved(ctx, all)
		}
		cancel()
		if err == nil {
			return
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// clearOfRemoved clears the alarms of former members, which nobody else does.
func clearOfRemoved(ctx context.Context, all *client.Client) {
	members, err := all.Cluster().MemberList(ctx)
	if err != nil {
		return
	}
	alarms, err := all.Maintenance().Alarms(ctx)
	if err != nil {
		return
	}
	for _, a := range alarms {
		if !slices.ContainsFunc(members.Members,
			func(m client.Member) bool { return m.ID == a.Member }) {
			_, _ = all.Maintenance().AlarmDisarm(ctx, a)
		}
	}
}
