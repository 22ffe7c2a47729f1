package chaos

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
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

// chosen returns the faults of VIGIL_FAULT, or nil.
func chosen(t *testing.T) (out []fault) {
	word := os.Getenv("VIGIL_FAULT")
	if word == "" {
		return nil
	}
	for _, f := range faults {
		if strings.Contains(f.name, word) {
			out = append(out, f)
		}
	}
	if out == nil {
		t.Fatalf("VIGIL_FAULT: no fault has %q in its name", word)
	}
	return out
}

// TestFaults lets the faults of the short run happen once each.
func TestFaults(t *testing.T) {
	list := chosen(t)
	if list == nil {
		for _, f := range faults {
			if f.short {
				list = append(list, f)
			}
		}
	}
	r := newRun(t, seed(t))
	for _, f := range list {
		r.round(f)
	}
	r.report()
}

// TestSoak lets all faults happen in turn, each time in another order, for the duration of VIGIL_SOAK.
func TestSoak(t *testing.T) {
	if os.Getenv("VIGIL_SOAK") == "" {
		t.Skip("VIGIL_SOAK=30m lets it run for half an hour")
	}
	length, err := time.ParseDuration(os.Getenv("VIGIL_SOAK"))
	if err != nil {
		t.Fatalf("VIGIL_SOAK: %v", err)
	}
	list := chosen(t)
	if list == nil {
		list = faults
	}
	r := newRun(t, seed(t))
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
