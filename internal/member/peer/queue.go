package peer

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// queue holds the messages that wait for one member, in two lanes.
type queue struct {
	maxBytes, maxMessages int
	// woken has a capacity of one; put sends to it.
	woken chan struct{}

	mu struct {
		sync.Mutex
		open    bool
		control []*raftpb.Message
		log     []*raftpb.Message
		// bytes and count measure the log lane, including messages that were taken and not yet
		// released.
		bytes, count int
	}
}

func newQueue(maxBytes, maxMessages int) *queue {
	return &queue{maxBytes: maxBytes, maxMessages: maxMessages, woken: make(chan struct{}, 1)}
}

// inLogLane reports whether messages of a type travel in the log lane.
func inLogLane(t raftpb.MessageType) bool { return t == raftpb.MsgApp || t == raftpb.MsgProp }

// size estimates the memory of a message and its size on the wire, without encoding it.
func size(m *raftpb.Message) int {
	n := 64 + len(m.GetContext())
	for _, e := range m.GetEntries() {
		n += 32 + len(e.GetData())
	}
	return n
}

// put adds a message. It returns how many messages it dropped, m included, and whether one of the
// log lane was among them. The log lane drops the newest, so that the receiver gets a prefix. The
// control lane drops the oldest, since newer messages supersede them.
func (q *queue) put(m *raftpb.Message) (dropped int, lost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	log := inLogLane(m.GetType())
	switch {
	case !q.mu.open:
		return 1, log
	case log:
		n := size(m)
		if last := q.lastLog(); repeats(m, last) && q.mu.bytes+n-size(last) <= q.maxBytes {
			q.mu.bytes += n - size(last)
			q.mu.log[len(q.mu.log)-1] = m
			return 0, false
		}
		// One message always fits, whatever its size.
		if q.mu.count > 0 && q.mu.bytes+n > q.maxBytes || q.mu.count >= q.maxMessages {
			return 1, true
		}
		q.mu.bytes += n
		q.mu.count++
		q.mu.log = append(q.mu.log, m)
	default:
		if len(q.mu.control) >= q.maxMessages {
			dropped = (len(q.mu.control) + 1) / 2
			n := copy(q.mu.control, q.mu.control[dropped:])
			clear(q.mu.control[n:])
			q.mu.control = q.mu.control[:n]
		}
		q.mu.control = append(q.mu.control, m)
	}
	select {
	case q.woken <- struct{}{}:
	default:
	}
	return dropped, false
}

// lastLog returns the newest message of the log lane that was not taken, nil if there is none.
func (q *queue) lastLog() *raftpb.Message {
	if n := len(q.mu.log); n > 0 {
		return q.mu.log[n-1]
	}
	return nil
}

// repeats reports whether m contains all entries of a waiting message, which then need not be sent.
// A leader that probes a member sends the same entries again for each answer to a heartbeat, and a
// member that stood still answers many heartbeats at once, one for each read of its clients.
func repeats(m, waiting *raftpb.Message) bool {
	return waiting != nil && m.GetType() == raftpb.MsgApp && waiting.GetType() == raftpb.MsgApp &&
		m.GetTerm() == waiting.GetTerm() && m.GetIndex() == waiting.GetIndex() &&
		m.GetLogTerm() == waiting.GetLogTerm() &&
		len(m.GetEntries()) >= len(waiting.GetEntries())
}

// takeControl swaps the control lane for an empty slice.
func (q *queue) takeControl(into []*raftpb.Message) []*raftpb.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.mu.control
	q.mu.control = into[:0]
	return out
}

// takeLog swaps the log lane for an empty slice. What it returns counts until release.
func (q *queue) takeLog(into []*raftpb.Message) []*raftpb.Message {
	q.mu.Lock()
	defer q.mu.Unlock()
	out := q.mu.log
	q.mu.log = into[:0]
	return out
}

// release notes that messages of the log lane were written.
func (q *queue) release(bytes, count int) {
	if count == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.bytes -= bytes
	q.mu.count -= count
}

// setOpen opens the queue, or closes it and drops the queued messages; a closed queue drops all
// later ones. It returns how many it dropped, including taken messages of the log lane, and whether
// any were of the log lane.
func (q *queue) setOpen(open bool) (dropped int, lost bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.open = open
	if open {
		return 0, false
	}
	dropped, lost = len(q.mu.control)+q.mu.count, q.mu.count > 0
	q.mu.control, q.mu.log, q.mu.bytes, q.mu.count = nil, nil, 0, 0
	return dropped, lost
}

// waiting returns the queued messages and bytes, for the metrics.
func (q *queue) waiting() (bytes, messages int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.bytes, q.mu.count + len(q.mu.control)
}
