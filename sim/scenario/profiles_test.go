package scenario

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestProfiles: a seed always has the same plan of a profile, which is valid, has only its faults
// and work, and of which there are some within a few seeds.
func TestProfiles(t *testing.T) {
	names := map[string]bool{Mixed: true}
	for _, f := range profiles {
		if names[f.name] || f.aim == "" || f.faulty <= firstFault || f.pace <= 0 {
			t.Errorf("%+v: the name is taken, or the aim or a time is missing", f)
		}
		names[f.name] = true
		seen := map[string]bool{}
		for seed := range uint64(40) {
			p, err := ProfilePlan(f.name, seed, 0)
			if err == nil {
				err = p.validate()
			}
			if err != nil {
				t.Fatalf("%s, seed %d: %v", f.name, seed, err)
			}
			if q, _ := ProfilePlan(f.name, seed, 0); !reflect.DeepEqual(p, q) {
				t.Fatalf("%s, seed %d: %+v and %+v", f.name, seed, p, q)
			}
			if !slices.Equal(p.Work, f.work) || p.Faulty != f.faulty {
				t.Errorf("%s, seed %d: work %q until %v", f.name, seed, p.Work, p.Faulty)
			}
			for n, x := range p.Faults {
				seen[x.Kind] = true
				if x.At < firstFault || x.At >= p.Faulty || n > 0 && x.At < p.Faults[n-1].At {
					t.Errorf("%s, seed %d: too early, too late or not in order: %v",
						f.name, seed, x)
				}
			}
		}
		for k := range seen {
			if !slices.Contains(f.faults, k) && !slices.Contains(f.added, k) {
				t.Errorf("%s has %q", f.name, k)
			}
		}
		for _, k := range slices.Concat(f.faults, f.added) {
			if !seen[k] {
				t.Errorf("%s never has %q", f.name, k)
			}
		}
	}
	// Faults that repeat by themselves are alone, and last as long as faults begin.
	for _, name := range []string{"torn", "acks", "begins", "renewals"} {
		if p, err := ProfilePlan(name, 5, 0); err != nil || len(p.Faults) != 1 ||
			p.Faults[0].At+p.Faults[0].For != p.Faulty {
			t.Errorf("%s has the faults %v until %v, %v", name, p.Faults, p.Faulty, err)
		}
	}
	if p, err := ProfilePlan(Mixed, 3, 3*time.Minute); err != nil ||
		!reflect.DeepEqual(p, NewPlan(3)) {
		t.Errorf("the mixed profile is not that of seeds: %+v, %v", p, err)
	}
	if _, err := ProfilePlan("x", 1, 0); err == nil || !strings.Contains(err.Error(), "reads: ") {
		t.Errorf("an unknown profile: %v", err)
	}
}
