package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vigil/server"
)

// gates are the values of etcd's feature gates.
type gates map[string]bool

// knownGates are etcd's feature gates, with the reason if a gate has no effect.
var knownGates = map[string]string{
	"AllAlpha":                     "each gate is set separately",
	"AllBeta":                      "each gate is set separately",
	"CompactHashCheck":             "",
	"FastLeaseKeepAlive":           "a leader always renews leases without waiting for pending entries",
	"InitialCorruptCheck":          "",
	"LeaseCheckpoint":              "the remaining TTL of leases is always replicated",
	"LeaseCheckpointPersist":       "the remaining TTL of leases is always replicated",
	"PriorityRequest":              "other requests do not delay the expiry of leases",
	"SetMemberLocalAddr":           "",
	"StopGRPCServiceOnDefrag":      "defragmentation stops nothing",
	"TxnModeWriteWithSharedBuffer": "there is no such buffer",
}

// gateFlag accepts etcd's feature gates. Three of them have an effect; InitialCorruptCheck and
// CompactHashCheck are on by default.
func gateFlag(o *options) *option {
	return &option{name: "feature-gates", value: "NAME=BOOL,...", joins: true,
		help: "InitialCorruptCheck: compare with other members before serving; CompactHashCheck: compare the hashes of compactions; SetMemberLocalAddr: connect to members from the first address of --initial-advertise-peer-urls; etcd's other gates are accepted without effect",
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
