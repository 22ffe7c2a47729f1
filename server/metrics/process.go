package metrics

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/release"
)

// fileDescriptors holds the number of open files of the process and its limit.
type fileDescriptors struct{ used, limit uint64 }

var processCollector = &table[fileDescriptors]{source: readFileDescriptors,
	readings: []reading[fileDescriptors]{
		gauge("os_fd_used", "File descriptors in use.",
			func(f fileDescriptors) float64 { return float64(f.used) }),
		gauge("os_fd_limit", "Limit of file descriptors of the process.",
			func(f fileDescriptors) float64 { return float64(f.limit) }),
	}}

// clockCollector exports the time of the member. The time of the scrape is Prometheus' own: the
// difference is that of the clocks.
var clockCollector = &table[time.Time]{source: time.Now, readings: []reading[time.Time]{
	gauge("vigil_clock_seconds", "Time of the member's clock, in seconds since 1970.",
		func(now time.Time) float64 { return float64(now.UnixMilli()) / 1000 }),
}}

func readFileDescriptors() (f fileDescriptors) {
	if d, err := os.Open("/proc/self/fd"); err == nil {
		names, _ := d.Readdirnames(-1)
		d.Close()
		f.used = uint64(max(len(names)-1, 0)) // without d itself
	}
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) == nil {
		f.limit = r.Cur
	}
	return f
}

// buildInfo returns the metrics that are constant for a process.
func buildInfo(memberID uint64) (all []prometheus.Collector) {
	commit, _ := release.Source()
	for _, m := range []struct {
		name, help string
		labels     prometheus.Labels
	}{
		{"etcd_server_version", "Level of the etcd API that is served.",
			prometheus.Labels{"server_version": release.APIVersion}},
		{"etcd_server_go_version", "Go version the server was built with.",
			prometheus.Labels{"server_go_version": runtime.Version()}},
		{"etcd_server_id", "ID of the member in hexadecimal.",
			prometheus.Labels{"server_id": fmt.Sprintf("%x", memberID)}},
		{"vigil_build_info", "Version and source revision of this program.",
			prometheus.Labels{"version": release.Version, "revision": commit}},
	} {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: m.name, Help: m.help,
			ConstLabels: m.labels})
		g.Set(1)
		all = append(all, g)
	}
	return all
}
