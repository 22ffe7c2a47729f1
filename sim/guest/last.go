//go:build wasip1

package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"vigil/client"
	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

// last makes the last write, and asks all members of the cluster for their hash at its revision.
func last(c *setup.Client, rng *rand.Rand) error {
	w := &worker{config: c, id: c.First + 99, member: -1, rng: rng, seen: map[string]int64{}}
	if err := w.connect(c.Endpoints...); err != nil {
		return err
	}
	var o check.Op
	for o.Outcome != check.Acked {
		o = w.do(check.Put, keys[0])
	}
	for _, e := range members(w.Client) {
		cl, err := connect(e)
		if err != nil {
			return err
		}
		for !reportHash(cl, e, o.Rev) {
			time.Sleep(50 * time.Millisecond)
		}
		cl.Close()
	}
	report(setup.Report{Final: o.Rev})
	return nil
}

// reportHash reports the hash of a member's keys at a revision, and whether the member answered.
func reportHash(cl *client.Client, endpoint string, rev int64) bool {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	r, err := cl.Maintenance().HashKV(ctx, rev)
	if err != nil {
		return false
	}
	report(setup.Report{Hash: &setup.Hash{Endpoint: endpoint, Rev: rev, Hash: r.Hash,
		Compact: r.CompactRevision}})
	return true
}

// members returns the endpoints of all members, when each of them has started and votes.
func members(cl *client.Client) []string {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
		r, err := cl.Cluster().MemberList(ctx)
		cancel()
		var out []string
		if err == nil {
			for _, m := range r.Members {
				if len(m.ClientURLs) > 0 && !m.IsLearner {
					out = append(out, strings.TrimPrefix(m.ClientURLs[0], "http://"))
				}
			}
			if len(out) == len(r.Members) {
				return out
			}
		}
		time.Sleep(200 * time.Millisecond)
	}
}
