package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/store/ration"
)

// rangeCollector exports the state of the budget for large results.
type rangeCollector struct{ budget *ration.Budget }

// rangeMetrics are read from one look at the budget.
var rangeMetrics = []struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*ration.Stats) float64
}{
	{rangeDesc("bytes_in_flight", "Memory of results of more than 64 KiB that are being made or sent."),
		prometheus.GaugeValue, func(s *ration.Stats) float64 { return float64(s.Held) }},
	{rangeDesc("bytes_in_flight_limit", "What these results may take together, --max-range-bytes-in-flight."),
		prometheus.GaugeValue, func(s *ration.Stats) float64 { return float64(s.Limit) }},
	{rangeDesc("waiting", "Reads that wait for the memory of their result."),
		prometheus.GaugeValue, func(s *ration.Stats) float64 { return float64(s.Waiting) }},
	{rangeDesc("waits_total", "Reads that have waited for the memory of their result."),
		prometheus.CounterValue, func(s *ration.Stats) float64 { return float64(s.Waits) }},
	{rangeDesc("waits_given_up_total", "Reads that ended while they waited for the memory of their result."),
		prometheus.CounterValue, func(s *ration.Stats) float64 { return float64(s.GaveUp) }},
	{rangeDesc("waited_seconds_total", "Time that reads have waited for the memory of their result."),
		prometheus.CounterValue, func(s *ration.Stats) float64 { return s.Waited.Seconds() }},
}

func rangeDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("vigil_range_"+name, help, nil, nil)
}

// Describe implements prometheus.Collector.
func (c rangeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, m := range rangeMetrics {
		ch <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c rangeCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.budget.Stats()
	for _, m := range rangeMetrics {
		ch <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&s))
	}
}
