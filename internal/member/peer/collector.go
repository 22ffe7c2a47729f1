package peer

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/histogram"
)

// Collector exports a Transport's figures under etcd's names, and under Vigil's own names where
// etcd has none. It reads the counters at each scrape.
type Collector struct {
	t        *Transport
	readings []reading
	histos   []histo
	refused  *prometheus.Desc
	pending  *prometheus.Desc
	failing  *prometheus.Desc
}

type reading struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	local bool // has the label of this member too
	value func(*Status) float64
}

type histo struct {
	desc *prometheus.Desc
	read func(*Status) histogram.Snapshot
}

// NewCollector makes the collector of a Transport.
func NewCollector(t *Transport) *Collector {
	c := &Collector{t: t,
		refused: prometheus.NewDesc("vigil_peer_refused_connections_total",
			"Connections to the peer port that were refused.", []string{"Reason"}, nil),
		failing: prometheus.NewDesc("vigil_peer_failing_seconds",
			"How long messages cannot be sent to the peer, and why; 0 if they can.",
			[]string{"To", "Reason"}, nil),
		pending: prometheus.NewDesc("vigil_peer_pending_connections",
			"Connections to the peer port whose handshake is not over.", nil, nil),
	}
	add := func(kind prometheus.ValueType, name, help string, labels []string,
		value func(*Status) float64) {
		c.readings = append(c.readings,
			reading{prometheus.NewDesc(name, help, labels, nil), kind, len(labels) == 2, value})
	}
	counter, gauge := prometheus.CounterValue, prometheus.GaugeValue
	to, from, both := []string{"To"}, []string{"From"}, []string{"Local", "Remote"}
	add(gauge, "etcd_network_active_peers", "Whether messages can be sent to the peer.", both,
		func(s *Status) float64 {
			if s.Connected.IsZero() {
				return 0
			}
			return 1
		})
	add(counter, "etcd_network_disconnected_peers_total", "Times the stream to the peer was lost.",
		both, func(s *Status) float64 { return float64(s.Disconnects) })
	add(counter, "etcd_network_peer_sent_bytes_total", "Bytes sent to the peer.", to,
		func(s *Status) float64 { return float64(s.SentBytes) })
	add(counter, "etcd_network_peer_received_bytes_total", "Bytes received from the peer.", from,
		func(s *Status) float64 { return float64(s.ReceivedBytes) })
	add(counter, "etcd_network_peer_sent_failures_total", "Raft messages that were not sent.", to,
		func(s *Status) float64 { return float64(s.SendFailures) })
	add(counter, "etcd_network_peer_received_failures_total", "Streams from the peer that broke.",
		from, func(s *Status) float64 { return float64(s.ReceiveFailures) })
	transfer := func(verb string, labels []string, of func(*Status) *Transfers) {
		name := "etcd_network_snapshot_" + verb
		add(counter, name+"_success", "Bulk transfers that succeeded.", labels,
			func(s *Status) float64 { return float64(of(s).OK) })
		add(counter, name+"_failures", "Bulk transfers that failed.", labels,
			func(s *Status) float64 { return float64(of(s).Failed) })
		add(gauge, name+"_inflights_total", "Bulk transfers under way.", labels,
			func(s *Status) float64 { return float64(of(s).UnderWay) })
		c.histos = append(c.histos,
			histo{prometheus.NewDesc(name+"_total_duration_seconds",
				"Time that a bulk transfer takes.", labels, nil),
				func(s *Status) histogram.Snapshot { return of(s).Durations }})
		add(counter, "vigil_peer_bulk_"+verb+"_bytes_total", "Bytes of bulk transfers.", labels,
			func(s *Status) float64 { return float64(of(s).Bytes) })
	}
	transfer("send", to, func(s *Status) *Transfers { return &s.Sent })
	transfer("receive", from, func(s *Status) *Transfers { return &s.Received })
	c.histos = append(c.histos,
		histo{prometheus.NewDesc("etcd_network_peer_round_trip_time_seconds",
			"Time that a ping takes to the peer and back.", to, nil),
			func(s *Status) histogram.Snapshot { return s.RoundTrips }})

	add(counter, "vigil_peer_sent_messages_total", "Raft messages sent to the peer.", to,
		func(s *Status) float64 { return float64(s.SentMessages) })
	add(counter, "vigil_peer_received_messages_total", "Raft messages received from the peer.",
		from, func(s *Status) float64 { return float64(s.ReceivedMessages) })
	add(counter, "vigil_peer_dropped_messages_total",
		"Raft messages to the peer that were dropped.", to,
		func(s *Status) float64 { return float64(s.DroppedMessages) })
	add(counter, "vigil_peer_connects_total", "Times the stream to the peer was opened.", to,
		func(s *Status) float64 { return float64(s.Connects) })
	add(gauge, "vigil_peer_queued_bytes", "Bytes of raft entries that wait to be sent to the peer.",
		to, func(s *Status) float64 { return float64(s.QueuedBytes) })
	add(gauge, "vigil_peer_queued_messages", "Raft messages that wait to be sent to the peer.", to,
		func(s *Status) float64 { return float64(s.QueuedMessages) })
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, r := range c.readings {
		ch <- r.desc
	}
	for _, h := range c.histos {
		ch <- h.desc
	}
	ch <- c.refused
	ch <- c.pending
	ch <- c.failing
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	local := strconv.FormatUint(c.t.o.MemberID, 16)
	for _, s := range c.t.Status() {
		id := strconv.FormatUint(s.ID, 16)
		for _, r := range c.readings {
			labels := []string{id}
			if r.local {
				labels = []string{local, id}
			}
			ch <- prometheus.MustNewConstMetric(r.desc, r.kind, r.value(&s), labels...)
		}
		failing, reason := 0.0, ""
		if f := s.Failure; f != nil {
			failing, reason = time.Since(f.Since).Seconds(), f.Reason()
		}
		ch <- prometheus.MustNewConstMetric(c.failing, prometheus.GaugeValue, failing, id, reason)
		for _, h := range c.histos {
			x := h.read(&s)
			ch <- prometheus.MustNewConstHistogram(h.desc, x.Count(), x.Sum.Seconds(),
				x.Cumulative(time.Second), id)
		}
	}
	byReason, pending := c.t.Refused()
	for reason, n := range byReason {
		ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(n), reason)
	}
	ch <- prometheus.MustNewConstMetric(c.pending, prometheus.GaugeValue, float64(pending))
}
