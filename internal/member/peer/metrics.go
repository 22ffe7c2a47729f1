package peer

import (
	"slices"
	"sync/atomic"
	"time"

	"vigil/internal/histogram"
)

// stats are the counters of one member's streams, in both directions.
type stats struct {
	sentBytes, receivedBytes      atomic.Uint64 // of all streams
	sent, received                atomic.Uint64 // raft messages
	dropped                       atomic.Uint64 // raft messages
	sendFailures, receiveFailures atomic.Uint64
	connects, disconnects         atomic.Uint64
	rtt                           roundTrips

	bulkSentBytes, bulkReceivedBytes atomic.Uint64
	bulkSending, bulkReceiving       atomic.Int64
	bulkSent, bulkReceived           transfers
}

// newStats returns counters at zero. The bounds of the histograms are etcd's.
func newStats() stats {
	transfer := func() transfers {
		return transfers{durations: histogram.New(100*time.Millisecond,
			10)}
	}
	return stats{rtt: roundTrips{times: histogram.New(100*time.Microsecond, 16)},
		bulkSent: transfer(), bulkReceived: transfer()}
}

type roundTrips struct {
	last  atomic.Int64
	times *histogram.Histogram
}

func (r *roundTrips) observe(d time.Duration) {
	r.last.Store(int64(d))
	r.times.Observe(d)
}

// transfers counts bulk transfers.
type transfers struct {
	ok, failed atomic.Uint64
	durations  *histogram.Histogram // of transfers that succeeded
}

func (t *transfers) ended(err error, d time.Duration) {
	if err != nil {
		t.failed.Add(1)
		return
	}
	t.ok.Add(1)
	t.durations.Observe(d)
}

// Transfers are the bulk transfers with one member in one direction.
type Transfers struct {
	Bytes      uint64 // of data, also of transfers that failed or are under way
	UnderWay   int
	OK, Failed uint64
	Durations  histogram.Snapshot // of transfers that succeeded
}

// Status describes the streams of one other member. Counts are since the member became known.
type Status struct {
	ID uint64
	// Connected is the time since which messages can be sent to it, zero if they cannot.
	Connected time.Time
	// Failure is the reason if they cannot, nil if they can or before the first failed dial.
	Failure *Failure
	// Detour is why dialing the member failed, if it made the connection for messages itself.
	Detour *Failure
	// Version is the version that the member's program last sent, empty if none.
	Version string
	// RoundTrip is the last measurement, 0 before the first.
	RoundTrip time.Duration

	SentBytes, ReceivedBytes       uint64 // of all streams
	SentMessages, ReceivedMessages uint64
	DroppedMessages                uint64
	QueuedBytes, QueuedMessages    int
	SendFailures, ReceiveFailures  uint64
	Connects, Disconnects          uint64
	RoundTrips                     histogram.Snapshot

	Sent, Received Transfers
}

// Status returns the status of every other member, by id.
func (t *Transport) Status() []Status {
	t.mu.Lock()
	var all []*remote
	for _, p := range t.mu.members {
		all = append(all, p)
	}
	t.mu.Unlock()
	out := make([]Status, 0, len(all))
	for _, p := range all {
		out = append(out, p.status())
	}
	slices.SortFunc(out, func(a, b Status) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return out
}

func (p *remote) status() Status {
	s := &p.stats
	out := Status{
		ID: p.id, RoundTrip: time.Duration(s.rtt.last.Load()),
		SentBytes: s.sentBytes.Load(), ReceivedBytes: s.receivedBytes.Load(),
		SentMessages: s.sent.Load(), ReceivedMessages: s.received.Load(),
		DroppedMessages: s.dropped.Load(),
		SendFailures:    s.sendFailures.Load(), ReceiveFailures: s.receiveFailures.Load(),
		Connects: s.connects.Load(), Disconnects: s.disconnects.Load(),
		RoundTrips: s.rtt.times.Read(),
		Sent:       readTransfers(&s.bulkSent, &s.bulkSentBytes, &s.bulkSending),
		Received:   readTransfers(&s.bulkReceived, &s.bulkReceivedBytes, &s.bulkReceiving),
	}
	out.QueuedBytes, out.QueuedMessages = p.queue.waiting()
	p.mu.Lock()
	defer p.mu.Unlock()
	out.Connected, out.Version, out.Failure, out.Detour = p.mu.since, p.mu.version,
		p.mu.failure, p.mu.detour
	return out
}

func readTransfers(t *transfers, bytes *atomic.Uint64, underWay *atomic.Int64) Transfers {
	return Transfers{Bytes: bytes.Load(), UnderWay: int(underWay.Load()), OK: t.ok.Load(),
		Failed:    t.failed.Load(),
		Durations: t.durations.Read()}
}

// Refused returns how many connections were refused, by reason, and how many are waiting for their
// handshake to end.
func (t *Transport) Refused() (byReason map[string]uint64, pending int) {
	byReason = map[string]uint64{}
	for c := range t.refused {
		name := "no handshake"
		if c > 0 {
			name = Code(c).Error()
		}
		byReason[name] = t.refused[c].Load()
	}
	return byReason, t.pending.count()
}
