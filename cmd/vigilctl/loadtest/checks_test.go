package loadtest

import (
	"strings"
	"testing"
	"time"
)

func TestVerdict(t *testing.T) {
	steady := make([]time.Duration, 150)
	for i := range steady {
		steady[i] = 5 * time.Millisecond
	}
	late := append([]time.Duration{600 * time.Millisecond}, steady[1:]...)
	for _, c := range []struct {
		o    outcome
		want string
	}{
		{outcome{took: time.Second, writes: steady},
			"PASS: Throughput is 151 writes/s\nPASS: Slowest request took 0.005000s\nPASS: Stddev is 0.000000s\n"},
		{outcome{took: 2 * time.Second, writes: steady},
			"FAIL: Throughput too low: 76 writes/s\nPASS: Slowest request took 0.005000s\nPASS: Stddev is 0.000000s\n"},
		{outcome{took: time.Second, writes: late},
			"PASS: Throughput is 151 writes/s\nSlowest request took too long: 0.600000s\nPASS: Stddev is 0.048419s\n"},
		{outcome{took: time.Second, writes: steady, failures: map[string]int{"b": 2, "a": 1}},
			"FAIL: too many errors\nFAIL: ERROR(a) -> 1\nFAIL: ERROR(b) -> 2\n" +
				"PASS: Throughput is 151 writes/s\nPASS: Slowest request took 0.005000s\nPASS: Stddev is 0.000000s\n"},
	} {
		var out strings.Builder
		if ok := c.o.verdict(&out, 150); out.String() != c.want ||
			ok != !strings.Contains(strings.ReplaceAll(c.want, "Slowest request took too",
				"FAIL"), "FAIL") {
			t.Errorf("%v:\n%swant\n%s", ok, out.String(), c.want)
		}
	}
}
