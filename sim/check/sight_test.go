package check

import (
	"testing"
	"time"
)

// TestCheckSights: an event without permission and a denial with it are violations, when both are
// certain.
func TestCheckSights(t *testing.T) {
	spans := []PermitSpan{{"u", true, 10 * time.Second, 20 * time.Second, 0},
		{"u", false, 21 * time.Second, 30 * time.Second, 0}}
	for _, c := range []struct {
		name   string
		at     time.Duration
		denied bool
		from   time.Duration
		bad    int
	}{
		{"an event with the permission", 15, false, 0, 0},
		{"an event without it", 25, false, 0, 1},
		{"an event soon after it was taken away", 22, false, 0, 0},
		{"an event while it may have been given again", 31, false, 0, 0},
		{"an event while members may lag", 25, false, 24, 0},
		{"a denial with the permission", 15, true, 0, 1},
		{"a denial without it", 25, true, 0, 0},
		{"a denial soon after it was given", 11, true, 0, 0},
	} {
		s := []Sight{{"u", c.at * time.Second, c.denied}, {"other", 25 * time.Second, false}}
		if v := CheckSights(s, spans, c.from*time.Second); len(v) != c.bad {
			t.Errorf("%s: %q", c.name, v)
		}
	}
}
