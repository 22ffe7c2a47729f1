package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vigil/server"
)

// gates are etcd's feature gates that were set.
type gates map[string]bool

// knownGates are etcd's, with the reason why most of them change nothing.
var knownGates = map[string]string{
	"AllAlpha":                     "each gate is set by itself",
	"AllBeta":                      "each gate is set by itself",
	"CompactHashCheck":             "",
	"FastLeaseKeepAlive":           "a leader always keeps leases alive without waiting for what is applied",
	"InitialCorruptCheck":          "",
	"LeaseCheckpoint":              "the remaining time of leases is always replicated",
	"LeaseCheckpointPersist":       "the remaining time of leases is always replicated",
	"PriorityRequest":              "the end of leases is not held up by other requests",
	"SetMemberLocalAddr":           "",
	"StopGRPCServiceOnDefrag":      "defragmentation stops nothing",
	"TxnModeWriteWithSharedBuffer": "there is no such buffer",
}

// gateFlag takes etcd's feature gates. Three of them are switches here, of which InitialCorruptCheck and CompactHashCheck are on by default.
func gateFlag(o *options) *option {
	return &option{name: "feature-gates", value: "NAME=BOOL,...", joins: true,
		help: "InitialCorruptCheck: compare with other members before serving; CompactHashCheck: compare the hashes of compactions; SetMemberLocalAddr: connect to members from the first address of --initial-advertise-peer-urls; etcd's other gates are taken and change nothing",
		set: func(s string) error {
			next := gates{}
			for _, part := range splitList(s) {
				name, value, _ := strings.Cut(part, "=")
				if _, ok := knownGates[name]; !ok {
					return fmt.Errorf("no feature gate is called %q", name)
				}
				on, err := strconv.ParseBool(value)
				if err != nil {
					return fmt.Errorf("%s: want true or false", name)
				}
				next[name] = on
			}
			o.gates = next
			next.apply(&o.config)
			return nil
		},
		get: func() string {
			all := gates{"InitialCorruptCheck": true, "CompactHashCheck": true}
			for name, on := range o.gates {
				all[name] = on
			}
			var parts []string
			for name, on := range all {
				parts = append(parts, fmt.Sprintf("%s=%v", name, on))
			}
			slices.Sort(parts)
			return strings.Join(parts, ",")
		}}
}

func (g gates) apply(c *server.Config) {
	off := func(name string) bool { on, set := g[name]; return set && !on }
	c.NoInitialCorruptCheck = off("InitialCorruptCheck")
	c.NoCompactHashCheck = off("CompactHashCheck")
	c.SetMemberLocalAddr = g["SetMemberLocalAddr"]
}
