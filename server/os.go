package server

import (
	"os"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

// osCollector exports how many files the process has open and may open.
type osCollector struct{ used, limit *prometheus.Desc }

func newOSCollector() osCollector {
	return osCollector{
		used:  prometheus.NewDesc("os_fd_used", "File descriptors in use.", nil, nil),
		limit: prometheus.NewDesc("os_fd_limit", "File descriptors that the process may have.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c osCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.used
	ch <- c.limit
}

// Collect implements prometheus.Collector.
func (c osCollector) Collect(ch chan<- prometheus.Metric) {
	used, limit := 0, uint64(0)
	if d, err := os.Open("/proc/self/fd"); err == nil {
		names, _ := d.Readdirnames(-1)
		d.Close()
		used = max(len(names)-1, 0) // this one was open
	}
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
		limit = r.Cur
	}
	ch <- prometheus.MustNewConstMetric(c.used, prometheus.GaugeValue, float64(used))
	ch <- prometheus.MustNewConstMetric(c.limit, prometheus.GaugeValue, float64(limit))
}
