//go:build wasip1

package main

import (
	"math/rand/v2"

	"vigil/sim/scenario/setup"
)

// works are the kinds of work besides the operations on keys of check.Prefix, by the names of setup.Works. Each one has
// keys with a prefix of its own. It ends with the work of the process, and returns an error that is a violation.
var works = map[string]func(*setup.Client, *rand.Rand) error{
	"backup":        backUp,
	"bare":          bareCalls,
	"comparison":    compareMembers,
	"crowd":         crowd,
	"downgrade":     downgrade,
	"leases":        leases,
	"locks":         locks,
	"mirrors":       mirrors,
	"pages":         pages,
	"watch options": watchOptions,
}
