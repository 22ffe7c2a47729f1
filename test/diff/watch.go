package diff

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

const (
	// lateAfter bounds the wait for a response that must come.
	lateAfter = 60 * time.Second
	// quiet is how long nothing must come for an absence to be believed that is expected, and
	// resend the interval at which a progress request is sent again: etcd drops one if a watcher of
	// the stream is behind, as each one that begins in the past is for a tenth of a second.
	quiet  = 600 * time.Millisecond
	resend = 100 * time.Millisecond
)

// inbox is one watch stream with everything that came on it and was not taken yet.
type inbox struct {
	name   string
	stream pb.Watch_WatchClient
	in     chan *pb.WatchResponse
	held   []*pb.WatchResponse
	err    error
	// again counts the progress requests that were sent once more before the answer came: as many
	// answers may follow it. Some of them never do, and then the answers to later requests are
	// dropped instead, which are sent once more.
	again int
}

func openInbox(ctx context.Context, name string, s *Side) (*inbox, error) {
	stream, err := pb.NewWatchClient(s.Conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	b := &inbox{name: name, stream: stream, in: make(chan *pb.WatchResponse, 1024)}
	go func() {
		defer close(b.in)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			b.in <- m
		}
	}()
	return b, nil
}

// until receives until done says that what is held is enough, and reports whether it was before
// the time was up.
func (b *inbox) until(d time.Duration, done func(held []*pb.WatchResponse) bool) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for !done(b.held) {
		select {
		case m, ok := <-b.in:
			if !ok {
				return false
			}
			if b.again > 0 && isProgress(m) {
				b.again--
				continue
			}
			b.held = append(b.held, m)
		case <-timer.C:
			return false
		}
	}
	return true
}

// isProgress reports whether a response answers a progress request.
func isProgress(m *pb.WatchResponse) bool {
	return m.WatchId == -1 && len(m.Events) == 0 && !m.Created && !m.Canceled
}

// take empties the inbox.
func (b *inbox) take() []*pb.WatchResponse {
	held := b.held
	b.held = nil
	return held
}

// watcher is what the script knows of one watcher of the stream.
type watcher struct {
	req *pb.WatchCreateRequest
	// from is the first revision whose events it gets.
	from int64
	// sent counts the events that it was due so far.
	sent int
}

func (w *watcher) wants(e *mvccpb.Event) bool {
	if e.Kv.ModRevision < w.from {
		return false
	}
	key, end := w.req.Key, w.req.RangeEnd
	if len(key) == 0 {
		key = []byte{0}
	}
	switch {
	case len(end) == 0:
		if !bytes.Equal(e.Kv.Key, key) {
			return false
		}
	case bytes.Compare(e.Kv.Key, key) < 0:
		return false
	case !(len(end) == 1 && end[0] == 0) && bytes.Compare(e.Kv.Key, end) >= 0:
		return false
	}
	for _, f := range w.req.Filters {
		if f == pb.WatchCreateRequest_NOPUT && e.Type == mvccpb.Event_PUT ||
			f == pb.WatchCreateRequest_NODELETE && e.Type == mvccpb.Event_DELETE {
			return false
		}
	}
	return true
}

// Watch runs one watch stream on both sides, a step at a time: a step ends when both sides have
// sent all that it is due, and what came is compared then. Between steps nothing is under way, so
// that the answers are determined but for how events are batched; see settle.
type Watch struct {
	p             *Pair
	etcd, subject *inbox
	journals      [2]*inbox
	// journal is every event so far, received by etcd's own watch from the first revision.
	journal []*mvccpb.Event
	// live holds the watchers by id. compacted holds the ids of those that a compaction canceled.
	live      map[int64]*watcher
	compacted map[int64]bool
	compactAt int64
	steps     int
	// broken is set once a side did not send what was due; the rest cannot be compared.
	broken bool
}

// NewWatch opens the streams. Nothing may have been written yet, or the events before are unknown.
func NewWatch(t testing.TB, p *Pair) *Watch {
	w := &Watch{p: p, live: map[int64]*watcher{}, compacted: map[int64]bool{}}
	open := func(name string, s *Side) *inbox {
		b, err := openInbox(t.Context(), name, s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	w.etcd, w.subject = open("etcd", p.Etcd), open("subject", p.Subject)
	w.journals = [2]*inbox{open("etcd's journal", p.Etcd), open("subject's journal", p.Subject)}
	for _, j := range w.journals {
		all := &pb.WatchCreateRequest{RangeEnd: []byte{0}, StartRevision: 1}
		if err := j.stream.Send(create(all)); err != nil {
			t.Fatal(err)
		}
		if !j.until(lateAfter, func(held []*pb.WatchResponse) bool { return len(held) > 0 }) {
			t.Fatalf("%s: no answer to the create", j.name)
		}
		j.take()
	}
	return w
}

func create(r *pb.WatchCreateRequest) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
}

func cancel(id int64) *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}
}

func progress() *pb.WatchRequest {
	return &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
}

// send puts a request on both streams. A side that cannot take it is found out by what it does
// not answer.
func (w *Watch) send(r *pb.WatchRequest) {
	for _, b := range []*inbox{w.etcd, w.subject} {
		if err := b.stream.Send(r); err != nil {
			b.err = err
		}
	}
}

// Do makes a unary call, and waits for its events.
func (w *Watch) Do(req proto.Message) {
	if w.broken {
		return
	}
	if _, ok := req.(*pb.CompactionRequest); ok {
		w.catchUp()
	}
	before := w.p.Rev
	o := w.p.Do(req)
	if c, ok := req.(*pb.CompactionRequest); ok && o.Resp != nil {
		w.compactAt = c.Revision
	}
	if o.Resp != nil && w.p.Rev > before {
		w.follow()
	}
	w.settle(NewCall(req).String(), 0)
}

// catchUp waits until no watcher is behind, so that it is determined which ones a compaction
// overtakes. A watcher that has no events to come gives no sign of that; but etcd serves all that
// are behind in one go, so it is enough that one more of them gets its event.
func (w *Watch) catchUp() {
	w.Do(put("barrier", ""))
	if w.broken {
		return
	}
	for _, j := range w.journals {
		r := &pb.WatchCreateRequest{Key: []byte("barrier"), StartRevision: w.p.Rev}
		if err := j.stream.Send(create(r)); err != nil {
			j.err = err
		}
		if !j.until(lateAfter, func(held []*pb.WatchResponse) bool { return len(held) == 2 }) {
			w.fail(j.name, "the event of the barrier", describe(j.held))
			return
		}
		if err := j.stream.Send(cancel(j.take()[0].WatchId)); err != nil {
			j.err = err
		}
		if !j.until(lateAfter, func(held []*pb.WatchResponse) bool { return len(held) == 1 }) {
			w.fail(j.name, "the end of the barrier", describe(j.held))
			return
		}
		j.take()
	}
}

// follow brings the journal up to the newest revision.
func (w *Watch) follow() {
	rev := w.p.Rev
	reached := func(held []*pb.WatchResponse) bool {
		if len(held) == 0 {
			return false
		}
		last := held[len(held)-1].Events
		return len(last) > 0 && last[len(last)-1].Kv.ModRevision >= rev
	}
	for i, j := range w.journals {
		if !j.until(lateAfter, reached) {
			w.fail(fmt.Sprintf("%s at revision %d", j.name, rev), "all events",
				fmt.Sprintf("%v %v", j.held, j.err))
			return
		}
		for _, m := range j.take() {
			if i == 0 {
				w.journal = append(w.journal, m.Events...)
			}
		}
	}
}

func (w *Watch) fail(what, want, got string) {
	w.broken = true
	w.p.note(what, []Field{{Path: "watch", Want: want, Got: got}})
}

// Create makes a watcher on both sides.
func (w *Watch) Create(r *pb.WatchCreateRequest) {
	if w.broken {
		return
	}
	w.send(create(r))
	what := fmt.Sprintf("watch create {%v}", r)
	if !w.etcd.until(lateAfter,
		func(held []*pb.WatchResponse) bool { return len(held) > 0 && held[0].Created }) {
		w.fail(what, "an answer", "none from etcd")
		return
	}
	answer := w.etcd.held[0]
	extra := 1
	if !answer.Canceled {
		from := r.StartRevision
		if from == 0 {
			from = answer.Header.Revision + 1
		}
		switch {
		case from < w.compactAt && from <= w.p.Rev:
			// Canceled at once, with the compact revision.
			w.compacted[answer.WatchId] = true
			extra++
		default:
			w.live[answer.WatchId] = &watcher{req: r, from: from}
		}
	}
	w.settle(what, extra)
}

// Cancel cancels a watcher by id.
func (w *Watch) Cancel(id int64) {
	if w.broken {
		return
	}
	w.send(cancel(id))
	extra := 0
	if w.live[id] != nil || w.compacted[id] {
		extra = 1
	}
	delete(w.live, id)
	delete(w.compacted, id)
	w.settle(fmt.Sprintf("watch cancel %d", id), extra)
}

// Progress asks for progress until both sides answer, or for long enough to believe that they do
// not. The answers to repeated requests count once.
func (w *Watch) Progress() {
	if w.broken {
		return
	}
	limit := quiet
	if w.answersProgress() {
		limit = lateAfter
	}
	for _, b := range []*inbox{w.etcd, w.subject} {
		end := time.Now().Add(limit)
		sent := 0
		for ; len(b.held) == 0 && time.Now().Before(end); sent++ {
			if err := b.stream.Send(progress()); err != nil {
				b.err = err
			}
			b.until(resend, func(held []*pb.WatchResponse) bool { return len(held) > 0 })
		}
		if limit == lateAfter && len(b.held) == 0 {
			w.fail("watch progress on "+b.name, "an answer", "none")
			return
		}
		if len(b.held) > 0 {
			b.again += sent - 1
		}
		if !w.fence(b) {
			return
		}
	}
	w.settle("watch progress", len(w.etcd.held))
}

// fence returns when a side has read all requests of the stream. A request for progress that it
// read later, after the next step, would have the answer of that step.
func (w *Watch) fence(b *inbox) bool {
	if err := b.stream.Send(create(&pb.WatchCreateRequest{Key: []byte("b"),
		RangeEnd: []byte("a")})); err != nil {
		b.err = err
	}
	refused := func(m *pb.WatchResponse) bool { return m.Created && m.Canceled }
	if !b.until(lateAfter,
		func(held []*pb.WatchResponse) bool { return slices.ContainsFunc(held, refused) }) {
		w.fail("refused create on "+b.name, "an answer", describe(b.held))
		return false
	}
	b.held = slices.DeleteFunc(b.held, refused)
	return true
}

// answersProgress reports whether a request for progress is answered: if there are watchers, none
// was canceled by a compaction, and none waits for a revision that is still to come.
func (w *Watch) answersProgress() bool {
	for _, one := range w.live {
		if one.req.StartRevision > w.p.Rev {
			return false
		}
	}
	return len(w.live) > 0 && len(w.compacted) == 0
}

// settle waits until both sides have sent the events that are due and extra responses besides, and
// compares what came, watcher by watcher. Adjacent responses with events of one watcher count as
// one with the last header: how events are cut into responses is the server's business, except
// that a revision is cut only into fragments.
func (w *Watch) settle(what string, extra int) {
	w.steps++
	w.p.Calls++
	what = fmt.Sprintf("step %d: %s", w.steps, what)
	due := map[int64]int{}
	for id, one := range w.live {
		n := 0
		for _, e := range w.journal {
			if one.wants(e) {
				n++
			}
		}
		if n > one.sent {
			due[id] = n - one.sent
			one.sent = n
		}
	}
	complete := func(held []*pb.WatchResponse) bool {
		others, left := 0, len(due)
		have := map[int64]int{}
		for _, m := range held {
			if len(m.Events) == 0 {
				others++
				continue
			}
			had := have[m.WatchId]
			have[m.WatchId] += len(m.Events)
			if n := due[m.WatchId]; had < n && have[m.WatchId] >= n {
				left--
			}
		}
		return others >= extra && left <= 0
	}
	for _, b := range []*inbox{w.etcd, w.subject} {
		if !b.until(lateAfter, complete) {
			w.fail(what+" on "+b.name,
				fmt.Sprintf("%d control responses and events %v", extra, due), describe(b.held))
		}
	}
	want, got := group(w.etcd.take()), group(w.subject.take())
	var fields []Field
	for id := range want {
		if got[id] == nil {
			got[id] = &sequence{}
		}
	}
	for id, g := range got {
		e := want[id]
		if e == nil {
			e = &sequence{}
		}
		path := fmt.Sprintf("watcher %d", id)
		if len(e.list) != len(g.list) {
			fields = append(fields, Field{path, describe(e.list), describe(g.list)})
			continue
		}
		for i := range e.list {
			fields = compareMessages(fields, fmt.Sprintf("%s response %d", path, i),
				e.list[i], w.p.Etcd.ids, g.list[i], w.p.Subject.ids)
		}
		if g.split != "" {
			fields = append(fields, Field{path, "whole revisions", g.split})
		}
	}
	w.p.note(what, fields)
}

// sequence is what one watcher was sent, with adjacent responses joined.
type sequence struct {
	list  []*pb.WatchResponse
	split string
}

func group(held []*pb.WatchResponse) map[int64]*sequence {
	out := map[int64]*sequence{}
	open := map[int64]bool{} // the last response of the watcher was a fragment with more to come
	for _, m := range held {
		s := out[m.WatchId]
		if s == nil {
			s = &sequence{}
			out[m.WatchId] = s
		}
		fragment := m.Fragment
		m.Fragment = false
		if n := len(s.list); n > 0 && len(m.Events) > 0 && len(s.list[n-1].Events) > 0 {
			last := s.list[n-1]
			rev := last.Events[len(last.Events)-1].Kv.ModRevision
			if m.Events[0].Kv.ModRevision == rev && !open[m.WatchId] {
				s.split = fmt.Sprintf("revision %d in two responses", rev)
			}
			last.Events = append(last.Events, m.Events...)
			last.Header = m.Header
		} else {
			s.list = append(s.list, m)
		}
		open[m.WatchId] = fragment
	}
	for id, more := range open {
		if more {
			out[id].split = "a fragment without the rest"
		}
	}
	return out
}

func describe(list []*pb.WatchResponse) string {
	s := fmt.Sprintf("%d responses", len(list))
	for _, m := range list {
		s += fmt.Sprintf(" {%v}", m)
	}
	if len(s) > textLimit {
		s = s[:textLimit] + "..."
	}
	return s
}
