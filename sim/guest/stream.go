//go:build wasip1

package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

const (
	// silence is how long a stream with progress notifications may be silent before it is opened
	// again: a connection may be dead without an error.
	silence = 5 * time.Second
	// gathering is how long a message waits for other watchers of its stream that receive the same.
	gathering = 2 * time.Millisecond
)

// observer is a watcher without the library. Its stream owns it.
type observer struct {
	setup.Watcher
	fragment, notify bool
	now              bool // it starts at the present revision
	next             int64
	created          bool
	// part has the events of a revision whose last fragment has not arrived.
	part *check.Message
}

// stream is a watch stream of bare messages with many watchers, which is opened again after an
// error, at another member.
type stream struct {
	c    *setup.Client
	name string
	rng  *rand.Rand
	// resumes is set if the watchers continue on the next stream after an error. Otherwise they end
	// with the stream.
	resumes bool

	mu     sync.Mutex
	at     string                         // the member of conn
	conn   etcdserverpb.Watch_WatchClient // nil while there is none
	cancel context.CancelFunc
	lastID int64
	open   map[int64]*observer // by id
	ending map[int64]bool      // ids whose cancellation was requested
	all    []*observer
	asleep time.Time // nothing is read before
	// gathered is the message that waits for other receivers.
	gathered  *check.Message
	raw       *etcdserverpb.WatchResponse
	receivers []int
}

func newStream(c *setup.Client, name string, rng *rand.Rand, resumes bool) *stream {
	return &stream{c: c, name: name, rng: rng, resumes: resumes, open: map[int64]*observer{},
		ending: map[int64]bool{}}
}

var observers int // in this process

// announce gives an observer its number, and starts its record.
func announce(c *setup.Client, o *observer, name string) {
	observers++
	o.Number, o.Next = 1000*c.First+observers, o.next
	o.Name = fmt.Sprintf("%s %d", name, o.Number)
	report(setup.Report{Watcher: &o.Watcher})
}

// add adds an observer, and requests it if the stream is open.
func (s *stream) add(o *observer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, o)
	if !o.now {
		announce(s.c, o, s.name)
	}
	s.create(o)
}

// create requests an observer. mu is held.
func (s *stream) create(o *observer) {
	if s.conn == nil {
		return
	}
	s.lastID++
	o.created, o.part = false, nil
	s.open[s.lastID] = o
	r := &etcdserverpb.WatchCreateRequest{WatchId: s.lastID, Key: []byte(o.From),
		RangeEnd: []byte(o.To), StartRevision: o.next,
		PrevKv: !o.NoPrev, Fragment: o.fragment, ProgressNotify: o.notify}
	if o.To == "" {
		r.RangeEnd = []byte{0}
	}
	if o.now {
		r.StartRevision = 0
	}
	if o.NoPut {
		r.Filters = append(r.Filters, etcdserverpb.WatchCreateRequest_NOPUT)
	}
	if o.NoDelete {
		r.Filters = append(r.Filters, etcdserverpb.WatchCreateRequest_NODELETE)
	}
	s.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: r}})
}

// send sends a request; the receiver notices errors. mu is held.
func (s *stream) send(r *etcdserverpb.WatchRequest) {
	if s.conn != nil {
		_ = s.conn.Send(r)
	}
}

// requestProgress requests the progress of all observers.
func (s *stream) requestProgress() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}})
}

// remove cancels one of the observers, if there is one.
func (s *stream) remove(rng *rand.Rand) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := make([]int64, 0, len(s.open))
	for id := range s.open {
		if !s.ending[id] && s.open[id].created {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return
	}
	slices.Sort(ids)
	id := ids[rng.IntN(len(ids))]
	s.ending[id] = true
	s.send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CancelRequest{CancelRequest: &etcdserverpb.WatchCancelRequest{WatchId: id}}})
}

// restart ends the stream, so that it is opened again.
func (s *stream) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}

// sleep lets the stream read nothing for some time.
func (s *stream) sleep(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asleep = time.Now().Add(d)
}

// run keeps the stream open until the process ends.
func (s *stream) run() {
	for {
		endpoint := s.c.Endpoints[s.rng.IntN(len(s.c.Endpoints))]
		if err := s.once(endpoint); err != nil && !passingStatus(err) {
			report(setup.Report{Failed: fmt.Sprintf("%s at %s: %v", s.name, endpoint, err)})
		}
		time.Sleep(time.Duration(1+s.rng.IntN(300)) * time.Millisecond)
	}
}

// once opens the stream at a member and reads it until an error.
func (s *stream) once(endpoint string) error {
	conn, err := dial(endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// The context also bounds the time to connect.
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	w, err := etcdserverpb.NewWatchClient(conn).Watch(ctx, grpc.MaxCallRecvMsgSize(64<<20))
	if err != nil {
		return err
	}
	s.begin(endpoint, w, cancel)
	defer s.end()
	for {
		s.mu.Lock()
		asleep := time.Until(s.asleep)
		s.mu.Unlock()
		if asleep > 0 {
			watchdog.Reset(asleep + silence)
			time.Sleep(asleep)
		}
		r, err := w.Recv()
		if err != nil {
			return err
		}
		watchdog.Reset(silence)
		if err := s.receive(r); err != nil {
			return err
		}
	}
}

// begin requests all observers on a new stream.
func (s *stream) begin(endpoint string, w etcdserverpb.Watch_WatchClient,
	cancel context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.conn, s.cancel, s.lastID = endpoint, w, cancel, 0
	for _, o := range s.all {
		s.create(o)
	}
}

// end forgets the stream. Observers end with it, unless they are to be resumed.
func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flush()
	s.conn, s.cancel = nil, nil
	clear(s.open)
	clear(s.ending)
	if s.resumes {
		return
	}
	for _, o := range s.all {
		if o.Number != 0 {
			report(setup.Report{Canceled: o.Number})
		}
	}
	s.all = nil
}

// violation is an error that no fault explains.
type violation struct{ error }

func violationf(format string, args ...any) error { return violation{fmt.Errorf(format, args...)} }

// receive handles a response.
func (s *stream) receive(r *etcdserverpb.WatchResponse) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.WatchId == -1 {
		if r.Created || r.Canceled || len(r.Events) > 0 {
			return violationf("a request for a watcher was rejected: %v", r)
		}
		return s.progress(r, nil)
	}
	o := s.open[r.WatchId]
	switch {
	case o == nil:
		return violationf("a message for watcher %d, which does not exist: %v", r.WatchId, r)
	case r.Created && r.Canceled:
		return violationf("watcher %d was rejected: %v", r.WatchId, r)
	case r.Created == o.created:
		return violationf("watcher %d, created %t, received %v", r.WatchId, o.created, r)
	case r.Created:
		o.created = true
		if o.now {
			o.now, o.next = false, r.Header.Revision+1
			announce(s.c, o, s.name)
		}
	case r.Canceled:
		return s.canceled(o, r)
	case len(r.Events) == 0:
		if !o.notify {
			return violationf("watcher %d received a notification that it did not ask for: %v",
				r.WatchId, r)
		}
		return s.progress(r, o)
	default:
		return s.events(o, r)
	}
	return nil
}

// canceled ends an observer, or continues it after a compaction. mu is held.
func (s *stream) canceled(o *observer, r *etcdserverpb.WatchResponse) error {
	delete(s.open, r.WatchId)
	switch {
	case o.part != nil:
		return violationf("watcher %d was canceled between fragments: %v", r.WatchId, r)
	case r.CompactRevision != 0:
		s.put(o, r, check.Message{Rev: r.CompactRevision, Compacted: true})
		o.next = max(o.next, r.CompactRevision)
		if !s.ending[r.WatchId] {
			s.create(o)
			return nil
		}
	case !s.ending[r.WatchId]:
		return violationf("watcher %d was canceled: %v", r.WatchId, r)
	}
	s.flush()
	report(setup.Report{Canceled: o.Number})
	s.all = slices.DeleteFunc(s.all, func(p *observer) bool { return p == o })
	return nil
}

// progress handles a notification for an observer, or for all. mu is held.
func (s *stream) progress(r *etcdserverpb.WatchResponse, only *observer) error {
	for _, o := range s.all {
		if only != nil && o != only || !o.created {
			continue
		}
		if o.part != nil {
			return violationf("progress between fragments: %v", r)
		}
		s.put(o, r, check.Message{Rev: r.Header.Revision})
		o.next = max(o.next, r.Header.Revision+1)
	}
	return nil
}

// events handles events, and puts fragments together. mu is held.
func (s *stream) events(o *observer, r *etcdserverpb.WatchResponse) error {
	last := r.Events[len(r.Events)-1].Kv.ModRevision
	switch {
	case r.Fragment && !o.fragment:
		return violationf("watcher %d received a fragment, for which it did not ask", r.WatchId)
	case r.Header.Revision < last && !r.Fragment:
		return violationf("watcher %d received revision %d with the header of %d", r.WatchId, last,
			r.Header.Revision)
	case !r.Fragment && o.part == nil:
		s.put(o, r, check.Message{})
	default:
		if o.part == nil {
			s.flush()
			o.part = &check.Message{At: now()}
		}
		o.addEvents(o.part, r)
		if r.Fragment {
			return nil
		}
		report(setup.Report{Message: o.part, Receivers: []int{o.Number}})
		o.part = nil
	}
	o.next = max(o.next, last+1)
	return nil
}

// addEvents adds the events of a response to a message.
func (o *observer) addEvents(m *check.Message, r *etcdserverpb.WatchResponse) {
	for _, e := range r.Events {
		m.Events = append(m.Events,
			check.Event{Item: *pbItem(e.Kv), Deleted: e.Type == mvccpb.DELETE})
		m.Before = append(m.Before, pbItem(e.PrevKv))
	}
}

// put reports a message to an observer, together with the same message to others. mu is held.
func (s *stream) put(o *observer, r *etcdserverpb.WatchResponse, m check.Message) {
	if s.gathered != nil && s.gathered.Rev == m.Rev && s.gathered.Compacted == m.Compacted &&
		sameEvents(s.raw.Events, r.Events) &&
		!slices.Contains(s.receivers, o.Number) {
		s.receivers = append(s.receivers, o.Number)
		return
	}
	s.flush()
	m.At = now()
	o.addEvents(&m, r)
	s.gathered, s.raw, s.receivers = &m, r, append(s.receivers[:0], o.Number)
	time.AfterFunc(gathering, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.flush()
	})
}

// flush reports the message that waits. mu is held.
func (s *stream) flush() {
	if s.gathered != nil {
		report(setup.Report{Message: s.gathered, Receivers: s.receivers})
		s.gathered, s.raw = nil, nil
	}
}

func sameEvents(a, b []*mvccpb.Event) bool {
	return slices.EqualFunc(a, b, func(a, b *mvccpb.Event) bool {
		return a.Type == b.Type && sameKV(a.Kv, b.Kv) && sameKV(a.PrevKv, b.PrevKv)
	})
}

func sameKV(a, b *mvccpb.KeyValue) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ModRevision == b.ModRevision && a.CreateRevision == b.CreateRevision &&
		a.Version == b.Version && a.Lease == b.Lease &&
		bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

// pbItem converts a key; nil stays nil.
func pbItem(kv *mvccpb.KeyValue) *check.Item {
	if kv == nil {
		return nil
	}
	return &check.Item{Key: string(kv.Key), Value: short(kv.Value), Create: kv.CreateRevision,
		Mod: kv.ModRevision, Version: kv.Version}
}

// passingStatus reports whether an error of a bare call is that of a member that stops, of a
// learner, or of the network.
func passingStatus(err error) bool {
	if _, ok := err.(violation); ok {
		return false
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	}
	switch status.Convert(err).Message() {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCNoSpace),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests):
		return true // a full disk, or writes that wait for a slow one
	}
	return false
}
