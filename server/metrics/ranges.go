package metrics

import "vigil/internal/store/ration"

// newRangeCollector exports the state of the memory for large results.
func newRangeCollector(budget *ration.Budget) *table[ration.Stats] {
	type stats = ration.Stats
	return &table[stats]{source: budget.Stats, readings: []reading[stats]{
		gauge("vigil_range_bytes_in_flight",
			"Memory of results of more than 64 KiB that are being made or sent, in bytes.",
			func(s stats) float64 { return float64(s.Held) }),
		gauge("vigil_range_bytes_in_flight_limit",
			"Limit of this memory, --max-range-bytes-in-flight.",
			func(s stats) float64 { return float64(s.Limit) }),
		gauge("vigil_range_waiting", "Reads that wait for memory for their result.",
			func(s stats) float64 { return float64(s.Waiting) }),
		counter("vigil_range_waits_total", "Reads that have waited for memory for their result.",
			func(s stats) float64 { return float64(s.Waits) }),
		counter("vigil_range_waits_given_up_total",
			"Reads that ended while they waited for memory for their result.",
			func(s stats) float64 { return float64(s.GaveUp) }),
		counter("vigil_range_waited_seconds_total",
			"Time that reads have waited for memory for their result.",
			func(s stats) float64 { return s.Waited.Seconds() }),
	}}
}
