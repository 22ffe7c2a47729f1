package watch

import (
	"fmt"
	"sync"
	"time"
)

// Stream holds the watchers of one client and the queue of responses to it. The package comment
// says which methods may be called concurrently. A member may have very many idle streams: keep the
// struct small.
type Stream struct {
	hub     *Hub
	id      uint64
	info    StreamInfo
	created int64 // Unix time in nanoseconds
	// one token, for the sender in Next; nil before the first call. Guarded by mu until then.
	wake chan struct{}
	done chan struct{} // closed by Close; nil and guarded like wake

	// Guarded by Hub.mu.
	watchers watcherSet // including watchers that the hub canceled, until the client cancels them
	held     int64      // approximate memory of watchers
	nextID   int64
	active   int // watchers that are not canceled
	behind   int // active watchers that are not live
	// future holds the watchers that started above the distributed revision. startsAfter and
	// addFuture drop watchers that have begun since, or have ended.
	future []*watcher
	// pending are watchers that wait for a scan; queued: the stream is in Hub.mu.pending.
	queued  bool
	closed  bool
	pending list
	// parked holds watchers that wait for room, retrying the ones of a round: see rounds.go.
	parked, retrying list
	// turns holds the cost of catch-up in the scans that serve only this stream.
	turns turns
	// asks is the number of progress requests that wait until matched reaches askRev. tickDue: a
	// tick of the progress interval waits until the matcher is between batches. queuedAsk: the
	// stream is in Hub.mu.requests.
	asks      int32
	tickDue   bool
	queuedAsk bool
	askRev    int64
	// The progress interval: notifies is the number of watchers with it, tickAt the time of the
	// next tick, after Hub.began, if the stream is in Hub.mu.ticks (tickSlot >= 0).
	interval time.Duration
	tickAt   time.Duration
	notifies int32
	tickSlot int32
	ticking  *ticking // nil between two ticks

	mu struct {
		sync.Mutex
		runs     []run // runs[runHead:] are queued
		runHead  int
		queued   int64 // bytes in the queue and in flight
		inflight int64 // bytes that Next returned last
		answers  int   // created and canceled responses queued
		// parked watchers wait until queued falls to this value; -1 if none are parked
		resumeAt int64
		level    int64  // while the round has members: the level to which others may fill the queue
		members  int    // watchers of the round, see rounds.go
		retry    bool   // members are parked in retrying
		ended    uint64 // watchers that have ended
		waiting  bool   // the sender waits in Next, or Take has returned nothing
		gone     bool   // Next failed and was not called again
		closed   bool
		room     room // answers were taken, or the sender will take none
		// reports the stream as owner when there are responses for Take; nil with Next
		ready *Ready
		owner any
	}
}

// room is a condition that is allocated when somebody first waits for it.
type room struct{ *sync.Cond }

// wait waits with a lock that is held.
func (r *room) wait(mu *sync.Mutex) {
	if r.Cond == nil {
		r.Cond = sync.NewCond(mu)
	}
	r.Cond.Wait()
}

// Broadcast wakes all waiters.
func (r *room) Broadcast() {
	if r.Cond != nil {
		r.Cond.Broadcast()
	}
}

// NewStream opens a stream. It must be closed.
func (h *Hub) NewStream(info StreamInfo) *Stream {
	s := &Stream{hub: h, info: info, created: time.Now().UnixNano(), tickSlot: -1}
	s.mu.resumeAt = -1
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.nextStream++
	s.id = h.mu.nextStream
	if h.mu.closed {
		s.closed, s.mu.closed = true, true
		return s
	}
	if len(h.mu.streams) == 0 {
		h.mu.matched = h.ring.follow(true)
		h.mu.claimed = h.mu.matched
	}
	h.mu.streams[s.id] = s
	return s
}

// answer queues a response without events that is not progress. Hub.mu is held, or the order does
// not matter.
func (s *Stream) answer(r Response) {
	s.mu.Lock()
	s.putAnswer(r)
	s.mu.Unlock()
}

// awaitRoom waits while too many answers to the client are unsent.
func (s *Stream) awaitRoom() {
	s.mu.Lock()
	for s.mu.answers >= s.hub.opt.PendingAnswers && !s.mu.gone && !s.mu.closed {
		s.mu.room.wait(&s.mu.Mutex)
	}
	s.mu.Unlock()
}

// Refuse answers a create request that the caller rejects for the given reason.
func (s *Stream) Refuse(reason string) {
	s.awaitRoom()
	s.refuse(reason)
}

func (s *Stream) refuse(reason string) {
	s.answer(Response{WatchID: InvalidID, Revision: s.hub.revision(), Created: true, Canceled: true,
		Reason: reason})
}

// Create adds a watcher. The outcome is a response: created, or created and canceled with
// InvalidID and a reason; a watcher that starts below the compact revision is created and then
// canceled. It returns false, without a response, if rights have changed since r.Withheld was read.
func (s *Stream) Create(r CreateRequest) bool {
	s.awaitRoom()
	h := s.hub
	if r.StartRev < 0 {
		s.refuse(ReasonCompacted)
		return true
	}
	w := &watcher{stream: s, id: r.ID, start: r.StartRev, created: time.Now().UnixNano(),
		quiet: true, flags: r.flags()}
	w.key, w.end = r.span()
	if w.end != "" && w.key >= w.end {
		s.refuse(ReasonEmptyRange)
		return true
	}
	compacted := h.src.CompactRevision()

	h.mu.Lock()
	defer h.mu.Unlock()
	// The review after any later Withhold finds the watcher.
	if r.Withheld < h.ring.holdCount() {
		return s.closed
	}
	if !s.closed {
		s.create(w, compacted)
	}
	return true
}

// create adds a watcher. Its id is 0 if the hub should choose one. Hub.mu is held.
func (s *Stream) create(w *watcher, compacted int64) {
	h := s.hub
	if s.watchers.len() >= h.opt.StreamWatchers {
		s.refuse(fmt.Sprintf("%s (limit %d): cancel some or open another stream", ReasonTooMany,
			h.opt.StreamWatchers))
		return
	}
	if s.held+w.size() > h.opt.StreamWatcherBytes {
		s.refuse(fmt.Sprintf("%s (limit %d bytes): cancel some or open another stream",
			ReasonTooLarge, h.opt.StreamWatcherBytes))
		return
	}
	if w.id == 0 {
		for s.watchers.get(s.nextID) != nil {
			s.nextID++
		}
		w.id = s.nextID
		s.nextID++
	} else if s.watchers.get(w.id) != nil {
		s.refuse(ReasonDuplicateID)
		return
	}
	s.watchers.add(w)
	s.held += w.size()
	rev := h.revision()
	s.answer(Response{WatchID: w.id, Revision: rev, Created: true})
	if w.start != 0 && w.start <= rev && w.start < compacted {
		w.dead = true
		s.answer(Response{WatchID: w.id, CompactRevision: compacted, Canceled: true})
		h.counts.compacted.Add(1)
		return
	}
	s.active++
	if w.start > h.mu.matched {
		s.addFuture(w)
	}
	h.mu.watchers++
	if w.flags&notify != 0 {
		h.startTicks(s)
	}
	w.next = w.start
	if w.start == 0 {
		w.next = rev + 1
	}
	if w.next > h.mu.claimed {
		h.mu.live.add(w)
		return
	}
	s.behind++
	h.addPending(w)
}

// span returns the range as the hub keeps it: an empty end with the flag ranged is unbounded.
func (r *CreateRequest) span() (key, end string) {
	key = string(r.Key)
	if key == "" {
		key = "\x00"
	}
	if len(r.End) == 1 && r.End[0] == 0 {
		return key, ""
	}
	return key, string(r.End)
}

func (r *CreateRequest) flags() flags {
	var f flags
	for _, o := range []struct {
		on   bool
		flag flags
	}{
		{r.NoPut, noPut}, {r.NoDelete, noDelete}, {r.PrevKV, prevKV}, {r.Fragment, fragment},
		{r.ProgressNotify, notify}, {len(r.End) > 0, ranged},
	} {
		if o.on {
			f |= o.flag
		}
	}
	return f
}

// Cancel ends a watcher and queues a canceled response after the responses already queued for it.
// It ignores an id that the stream does not know. The stream knows the id of a watcher that the hub
// canceled until the client cancels it here.
func (s *Stream) Cancel(id int64) {
	s.awaitRoom()
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watchers.get(id)
	if w == nil || s.closed {
		return
	}
	s.watchers.remove(id)
	s.held -= w.size()
	s.mu.Lock()
	h.endWatcher(w)
	s.putAnswer(Response{WatchID: id, Revision: h.revision(), Canceled: true})
	s.mu.Unlock()
}

// endWatcher removes a watcher from its group or list. Both locks are held. Unless the stream ends,
// the caller queues an answer, which W7 needs if the watcher was the last of a round.
func (h *Hub) endWatcher(w *watcher) {
	if w.dead {
		return
	}
	w.dead = true
	s := w.stream
	s.mu.ended++
	s.active--
	h.mu.watchers--
	if w.group != h.mu.live {
		s.behind--
	}
	if w.flags&notify != 0 {
		s.notifies--
	}
	s.leaveRound(w)
	switch w.place {
	case inGroup:
		if g := w.group; g.running {
			g.dead++
			g.left = true
			if g == h.mu.live {
				h.mu.gone = append(h.mu.gone, w)
			}
		} else {
			w.group.remove(w)
		}
	case inPending:
		s.pending.remove(w)
	case inParked, inRetrying:
		s.removeParked(w)
	}
}

// Progress requests a notification with InvalidID that holds for all watchers of the stream. The
// hub drops the request if a watcher is behind or waits for a future revision, or if there are no
// watchers.
func (s *Stream) Progress() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed || s.active == 0 || s.behind > 0 {
		return
	}
	rev := h.revision()
	if h.mu.matched == rev {
		h.answerProgress(s, 1)
		return
	}
	s.asks++
	s.askRev = rev
	h.queueProgress(s)
}

// Close ends the stream and its watchers. Next returns ErrClosed. Any goroutine may call it, and
// more than once.
func (s *Stream) Close() {
	h := s.hub
	h.mu.Lock()
	if s.closed {
		h.mu.Unlock()
		return
	}
	s.closed = true
	delete(h.mu.streams, s.id)
	h.forgetProgress(s)
	h.stopTicks(s)
	s.mu.Lock()
	s.mu.closed = true
	done := s.done // if Next makes one from now on, it closes it itself
	s.charge(-s.mu.queued)
	s.mu.inflight, s.mu.runs, s.mu.runHead, s.mu.answers = 0, nil, 0, 0
	s.mu.room.Broadcast()
	s.wakeSender()
	n := 0
	for w := range s.watchers.all() {
		h.endWatcher(w)
		if n++; n%h.opt.slice == 0 {
			s.mu.Unlock()
			h.mu.Unlock()
			h.mu.Lock()
			s.mu.Lock()
		}
	}
	s.watchers, s.future = watcherSet{}, nil
	s.mu.Unlock()
	if len(h.mu.streams) == 0 {
		h.ring.follow(false)
	}
	h.mu.Unlock()
	if done != nil {
		close(done)
	}
}
