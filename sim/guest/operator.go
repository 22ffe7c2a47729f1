//go:build wasip1

package main

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"vigil/client"
	"vigil/sim/scenario/setup"
)

// runOperator transfers leadership until it is killed.
func runOperator(c setup.Operator) error {
	rng := rand.New(rand.NewPCG(c.Seed, 0))
	all, err := connect(c.Endpoints...)
	if err != nil {
		return err
	}
	members := map[uint64]*client.Client{}
	for {
		for _, e := range c.Endpoints {
			at, err := all.At(e)
			if err != nil {
				return err
			}
			transfer(at, members, rng)
			time.Sleep(time.Duration(rng.Int64N(c.Pause)))
		}
	}
}

// transferTimeout is the timeout of one transfer: another one is more useful than a long wait.
const transferTimeout = time.Second

// transfer asks the leader that a member names to transfer its leadership to another member, and
// that one in half of the cases to transfer it back at once. Each outcome is allowed: the leader
// may have changed, or may not be reached.
func transfer(at *client.Client, members map[uint64]*client.Client, rng *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), transferTimeout)
	defer cancel()
	r, err := at.Maintenance().Status(ctx)
	if err != nil {
		return
	}
	members[r.Header.MemberID] = at
	others := slices.DeleteFunc(slices.Sorted(maps.Keys(members)),
		func(id uint64) bool { return id == r.Leader })
	if members[r.Leader] == nil || len(others) == 0 {
		return
	}
	to := others[rng.IntN(len(others))]
	if _, err = members[r.Leader].Maintenance().MoveLeader(ctx, to); err == nil &&
		rng.IntN(2) == 0 {
		_, _ = members[to].Maintenance().MoveLeader(ctx, r.Leader)
	}
}
