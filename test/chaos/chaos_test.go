package chaos

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"vigil/test/link"
)

func seed(t *testing.T) uint64 {
	s := rand.Uint64()
	if given := os.Getenv("VIGIL_SEED"); given != "" {
		var err error
		if s, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("VIGIL_SEED: %v", err)
		}
	}
	t.Logf("VIGIL_SEED=%d", s)
	return s
}

// choose returns the faults of a list that VIGIL_FAULT selects. Without it they are all, or the
// short ones.
func choose(t *testing.T, list []fault, short bool) []fault {
	word := os.Getenv("VIGIL_FAULT")
	named := func(f fault) bool { return strings.Contains(f.name, word) }
	if !slices.ContainsFunc(slices.Concat(faults, packetFaults), named) {
		t.Fatalf("VIGIL_FAULT: no fault has %q in its name", word)
	}
	list = slices.DeleteFunc(slices.Clone(list), func(f fault) bool {
		return !named(f) || word == "" && short && !f.short
	})
	if len(list) == 0 {
		t.Skipf("VIGIL_FAULT: no fault of this network has %q in its name", word)
	}
	return list
}

// once lets each fault of a list happen once.
func once(t *testing.T, wire *link.Switch, list []fault) {
	r := newRun(t, seed(t), wire)
	for _, f := range list {
		r.round(f)
	}
	r.report()
}

// TestFaults lets the faults of the short run happen, with proxies between the members.
func TestFaults(t *testing.T) { once(t, nil, choose(t, faults, true)) }

// TestPackets is the short run with members in namespaces.
func TestPackets(t *testing.T) {
	wire := namespaces(t)
	if wire == nil {
		t.Skip("no network namespaces")
	}
	once(t, wire, choose(t, packetFaults, true))
}

// TestSoak lets all faults happen in turn, each time in another order, for the duration of
// VIGIL_SOAK. The members are in namespaces if possible.
func TestSoak(t *testing.T) {
	if os.Getenv("VIGIL_SOAK") == "" {
		t.Skip("VIGIL_SOAK=30m lets it run for half an hour")
	}
	length, err := time.ParseDuration(os.Getenv("VIGIL_SOAK"))
	if err != nil {
		t.Fatalf("VIGIL_SOAK: %v", err)
	}
	wire, all := namespaces(t), faults
	if wire == nil {
		t.Log("the members are connected through proxies")
	} else {
		all = slices.Concat(faults, packetFaults)
	}
	list := choose(t, all, false)
	r := newRun(t, seed(t), wire)
	r.soak = true
	for r.clock() < length {
		for _, n := range r.rng.Perm(len(list)) {
			if r.clock() < length {
				r.round(list[n])
			}
		}
	}
	if r.figures["a snapshot for a member that was away"] != nil && r.count(installed()) == 0 {
		t.Error("no member took a snapshot")
	}
	r.report()
}
