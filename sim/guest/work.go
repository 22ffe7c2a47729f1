//go:build wasip1

package main

import (
	"math/rand/v2"

	"vigil/client"
	"vigil/sim/scenario/setup"
)

// works are the kinds of work besides the operations on keys of check.Prefix, by the names of
// setup.Works, setup.Quota and setup.Users. Each one has keys with a prefix of its own. It ends
// with the work of the process, and returns an error that is a violation.
var works = map[string]func(*setup.Client, *rand.Rand) error{
	"alarms":        inOneProcess(alarms),
	"backup":        inOneProcess(backUp),
	"bare":          bareCalls,
	"comparison":    inOneProcess(compareMembers),
	"crowd":         crowd,
	"downgrade":     inOneProcess(downgrade),
	"leases":        leases,
	"locks":         locks,
	"mirrors":       mirrors,
	"pages":         pages,
	"queues":        inOneProcess(queues),
	"watch options": watchOptions,
	setup.Quota:     inOneProcess(useUpQuota),
	setup.Users:     users,
}

// inOneProcess is work that only the first process has, with a client of the library for all
// members.
func inOneProcess(do func(*setup.Client, *rand.Rand, *client.Client) error) func(*setup.Client,
	*rand.Rand) error {
	return func(c *setup.Client, rng *rand.Rand) error {
		if c.First != 0 {
			return nil
		}
		all, err := connect(c.Endpoints...)
		if err != nil {
			return err
		}
		defer all.Close()
		return do(c, rng, all)
	}
}
