package server

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/kv"
	"vigil/internal/member/replica"
)

// hasher computes the replica's hashes and measures their durations. It is a prometheus.Collector.
type hasher struct {
	replica         *replica.Replica
	whole, revision prometheus.Histogram
}

func newHasher(r *replica.Replica) *hasher {
	// etcd's buckets, 10 ms to 164 s.
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: prometheus.ExponentialBuckets(.01, 2, 15)})
	}
	return &hasher{
		replica: r,
		whole: histogram("etcd_mvcc_hash_duration_seconds",
			"Time that hashes of the whole store take."),
		revision: histogram("etcd_mvcc_hash_rev_duration_seconds",
			"Time that hashes up to a revision take."),
	}
}

// HashKV implements rpc.Hasher.
func (h *hasher) HashKV(ctx context.Context, revision int64) (kv.HashResult, error) {
	return timed(h.revision,
		func() (kv.HashResult, error) { return h.replica.HashKV(ctx, revision) })
}

// Hash implements rpc.Hasher.
func (h *hasher) Hash(ctx context.Context) (kv.HashResult, error) {
	return timed(h.whole, func() (kv.HashResult, error) { return h.replica.Hash(ctx) })
}

// timed records the duration of a hash that was not refused.
func timed(o prometheus.Observer, hash func() (kv.HashResult, error)) (kv.HashResult, error) {
	start := time.Now()
	res, err := hash()
	if err == nil {
		o.Observe(time.Since(start).Seconds())
	}
	return res, err
}

// Describe implements prometheus.Collector.
func (h *hasher) Describe(ch chan<- *prometheus.Desc) {
	h.whole.Describe(ch)
	h.revision.Describe(ch)
}

// Collect implements prometheus.Collector.
func (h *hasher) Collect(ch chan<- prometheus.Metric) {
	h.whole.Collect(ch)
	h.revision.Collect(ch)
}
