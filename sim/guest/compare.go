//go:build wasip1

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"vigil/client"
	"vigil/sim/scenario/setup"
)

// compareMembers asks all members for their hash at one revision, and for their status, from time
// to time.
func compareMembers(c *setup.Client, rng *rand.Rand, all *client.Client) error {
	for goesOn(c, c.Stop) {
		time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Second))))
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		r, err := all.Get(ctx, keys[0])
		cancel()
		if err != nil {
			continue
		}
		for _, e := range c.Endpoints {
			at, err := all.At(e)
			if err != nil {
				return err
			}
			// Members that lag have not compacted yet what others have: former revisions have more
			// comparable hashes.
			reportHash(at, e, max(1, r.Header.Revision-rng.Int64N(4)))
			reportStatus(at, e)
		}
	}
	return nil
}

// reportStatus reports what a member says about the cluster, and at which position of the raft log.
func reportStatus(at *client.Client, endpoint string) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	s, err := at.Maintenance().Status(ctx)
	if err != nil {
		return
	}
	// A full disk and the lack of a leader are of the member alone.
	alarms := slices.DeleteFunc(s.Errors,
		func(e string) bool { return !strings.Contains(e, "alarm:") })
	report(setup.Report{Status: &setup.Status{Endpoint: endpoint, Index: s.RaftAppliedIndex,
		Cluster: fmt.Sprintf("storage version %s, downgrade %q, alarms %q", s.StorageVersion,
			s.DowngradeTarget, alarms)}})
}
