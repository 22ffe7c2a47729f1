// Package session matches the requests of one watch stream with the answers of the server.
//
// The client chooses the ids of watchers, from 1 up, and never uses one again. A refusal does not
// name the refused request, which is one of the earlier requests without an answer. Servers answer
// in order, so it is the first one. But the session waits until the others have answers, so that a
// server that does not keep the order ends no other watcher. A server that assigns its own ids must
// answer in order.
//
// A Session has no lock and no goroutine: its owner guards it.
package session

import (
	"slices"

	"vigil/client/internal/request"
)

// Session holds the requests of one stream. W identifies a watcher, R is a refusal.
type Session[W comparable, R any] struct {
	last     int64                // the last id given
	watchers map[int64]*member[W] // created, or to be created
	ids      map[W]int64
	wait     []int64 // ids without an answer, in the order of the requests
	refusals []*refusal[R]
	out      []*request.Watch
	// asked and answers count the requests for progress and their answers. A server may leave a
	// request without an answer.
	asked, answers int64
	// Wake holds an element when there are requests to send.
	Wake chan struct{}
}

// member is a watcher of the stream.
type member[W any] struct {
	watcher W
	start   int64 // the revision from which it was requested; 0 if none
	created int64 // the store's revision when it was created
	asked   int64 // how often progress had been requested then
}

// refusal is a refusal whose request is not certain.
type refusal[R any] struct {
	among []int64
	why   R
}

// Refused is a watcher that the server has refused, and why.
type Refused[W comparable, R any] struct {
	Watcher W
	Why     R
}

// New returns a session without watchers.
func New[W comparable, R any]() *Session[W, R] {
	return &Session[W, R]{watchers: map[int64]*member[W]{}, ids: map[W]int64{},
		Wake: make(chan struct{}, 1)}
}

// RequestWatcher requests a watcher. It sets the id of the request.
func (s *Session[W, R]) RequestWatcher(w W, r *request.WatchCreate) {
	for s.last++; ; s.last++ {
		if _, taken := s.watchers[s.last]; !taken { // by the server
			break
		}
	}
	r.ID = s.last
	s.watchers[r.ID], s.ids[w] = &member[W]{watcher: w, start: r.Start}, r.ID
	s.wait = append(s.wait, r.ID)
	s.queueRequest(&request.Watch{Create: r})
}

// CancelWatcher removes a watcher. It requests its end if the watcher was requested, and otherwise
// withdraws that request.
func (s *Session[W, R]) CancelWatcher(w W) {
	id, ok := s.ForgetWatcher(w)
	if !ok {
		return
	}
	n := len(s.out)
	s.out = slices.DeleteFunc(s.out,
		func(r *request.Watch) bool { return r.Create != nil && r.Create.ID == id })
	if len(s.out) < n {
		s.removeWaiting(id) // it has none to wait for
		s.mergeProgress()
		return
	}
	s.queueRequest(&request.Watch{Cancel: &id})
}

// ForgetWatcher removes a watcher and returns its id, if there is one.
func (s *Session[W, R]) ForgetWatcher(w W) (id int64, ok bool) {
	if id, ok = s.ids[w]; ok {
		s.RemoveID(id)
	}
	return id, ok
}

// RequestProgress requests the progress of the stream. A request that has not been sent yet also
// answers later ones.
func (s *Session[W, R]) RequestProgress() {
	if n := len(s.out); n > 0 && s.out[n-1].Progress() {
		return
	}
	s.asked++
	s.queueRequest(&request.Watch{})
}

// mergeProgress makes one request of those for progress that wait next to each other, after the
// request between them was withdrawn.
func (s *Session[W, R]) mergeProgress() {
	n := len(s.out)
	s.out = slices.CompactFunc(s.out,
		func(a, b *request.Watch) bool { return a.Progress() && b.Progress() })
	s.asked -= int64(n - len(s.out))
}

// RecordProgress handles an answer to a request for progress: all created watchers of the stream
// have received their events up to a revision of the store. It returns the watchers of which that
// is certain. The answer may be older than the creation of a watcher that was answered before it,
// in which case that watcher may still lack events up to the revision of the store at its creation.
func (s *Session[W, R]) RecordProgress(rev int64) (list []W) {
	s.answers++
	for id, m := range s.watchers {
		// the answer, or its request, is younger than the watcher
		late := rev > m.created || s.answers > m.asked
		if fresh := m.start == 0 || m.start > m.created; (late || fresh) &&
			!slices.Contains(s.wait, id) {
			list = append(list, m.watcher)
		}
	}
	return list
}

func (s *Session[W, R]) queueRequest(r *request.Watch) {
	s.out = append(s.out, r)
	select {
	case s.Wake <- struct{}{}:
	default:
	}
}

// TakeRequests returns the requests to send, in order.
func (s *Session[W, R]) TakeRequests() []*request.Watch {
	out := s.out
	s.out = nil
	return out
}

// Watcher returns the watcher of an id. There is none after it was canceled.
func (s *Session[W, R]) Watcher(id int64) (w W, ok bool) {
	m, ok := s.watchers[id]
	if ok {
		w = m.watcher
	}
	return w, ok
}

// RemoveID removes the watcher of an id and returns it.
func (s *Session[W, R]) RemoveID(id int64) (w W, ok bool) {
	m, ok := s.watchers[id]
	if ok {
		w = m.watcher
		delete(s.watchers, id)
		delete(s.ids, w)
	}
	return w, ok
}

// RecordCreated handles the answer that a watcher was created when the store was at a revision, and
// returns the watcher: ok is false if it was canceled before. known is false if no request is open
// that the answer may belong to.
func (s *Session[W, R]) RecordCreated(id, rev int64) (w W, ok, known bool) {
	at := slices.Index(s.wait, id)
	if _, taken := s.watchers[id]; at < 0 && !taken && len(s.wait) > 0 {
		// The server assigns its own ids, and answers in order.
		at = 0
		own := s.watchers[s.wait[0]]
		if w, ok := s.RemoveID(s.wait[0]); ok {
			s.watchers[id], s.ids[w] = own, id
		}
	}
	if at < 0 {
		return w, false, false
	}
	s.removeWaiting(s.wait[at])
	m, ok := s.watchers[id]
	if ok {
		m.created, m.asked, w = rev, s.asked, m.watcher
	}
	return w, ok, true
}

// RecordRefusal handles the answer that a watcher was not created.
func (s *Session[W, R]) RecordRefusal(why R) {
	s.refusals = append(s.refusals, &refusal[R]{slices.Clone(s.wait), why})
}

// TakeRefused returns the watchers that were certainly refused, and removes them.
func (s *Session[W, R]) TakeRefused() (list []Refused[W, R]) {
	for {
		id, r := s.nextRefusal()
		if r == nil {
			return list
		}
		s.removeWaiting(id)
		if w, ok := s.RemoveID(id); ok {
			list = append(list, Refused[W, R]{w, r.why})
		}
	}
}

// removeWaiting removes an id that has its answer.
func (s *Session[W, R]) removeWaiting(id int64) {
	same := func(x int64) bool { return x == id }
	s.wait = slices.DeleteFunc(s.wait, same)
	for _, r := range s.refusals {
		r.among = slices.DeleteFunc(r.among, same)
	}
}

// nextRefusal returns a refusal and its id if that is certain: if as many ids wait as there are
// refusals, the refusals belong to them in order.
func (s *Session[W, R]) nextRefusal() (id int64, r *refusal[R]) {
	for len(s.refusals) > 0 && len(s.refusals[0].among) == 0 {
		s.refusals = s.refusals[1:] // its watcher was canceled before
	}
	if len(s.refusals) == 0 {
		return 0, nil
	}
	r = s.refusals[0]
	// Later refusals may belong to these ids too.
	if len(r.among) > len(s.refusals) {
		return 0, nil
	}
	s.refusals = s.refusals[1:]
	return r.among[0], r
}
