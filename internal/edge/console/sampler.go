package console

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"regexp"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/health"
)

var errClosed = errors.New("the member stops")

// point is what a chart shows of a member at one time.
type point struct {
	// in milliseconds since 1970, by the clock of the member that the browser is connected to
	At int64 `json:"at"`
	// Rates are by second since the point before, Times in seconds, of which 99 of 100 are shorter.
	Rates map[string]float64 `json:"rates,omitempty"`
	Times map[string]float64 `json:"times,omitempty"`
	// Size and Revision are those of the store.
	Size     int64 `json:"size"`
	Revision int64 `json:"revision"`
	Lag      int64 `json:"lag"`
}

// sampler measures all members, while there are readers.
type sampler struct {
	// read measures a member, stopped is closed when the console is closed. Set before use.
	read    func(ctx context.Context, id uint64) *reading
	stopped chan struct{}
	rounds  sync.WaitGroup

	mu struct {
		sync.Mutex
		readers int
		running bool
		closed  bool
		left    time.Time // when the last reader left
		members []uint64
		// nil while the sampler does not run: what it saw before is not the present
		last    map[uint64]*reading
		seen    map[uint64]*reading // of each member the newest with an answer
		points  map[uint64][]point  // the newest last, at most maxPoints
		changed chan struct{}       // closed after a round
	}
}

// join adds a reader, whose members are measured until leave is called.
func (s *sampler) join(members []uint64) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.readers++
	s.mu.members = members
	if s.mu.changed == nil {
		s.mu.changed = make(chan struct{})
	}
	if !s.mu.running && !s.mu.closed {
		s.mu.running = true
		s.rounds.Go(s.run)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.readers--
		s.mu.left = time.Now()
	}
}

// run measures until there has been no reader for a while.
func (s *sampler) run() {
	t := time.NewTicker(sampleInterval)
	defer t.Stop()
	for s.wanted() {
		s.round()
		select {
		case <-t.C:
		case <-s.stopped:
		}
	}
}

// close ends the measuring, and the streams that wait for it.
func (s *sampler) close() {
	s.mu.Lock()
	if !s.mu.closed {
		s.mu.closed = true
		close(s.stopped)
	}
	s.mu.Unlock()
	s.rounds.Wait()
}

// wanted reports whether there is a reader, or was one recently. If not, the sampler is not running
// any more.
func (s *sampler) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.running = !s.mu.closed &&
		(s.mu.readers > 0 || time.Since(s.mu.left) < sampleLinger); !s.mu.running {
		s.mu.last = nil
	}
	return s.mu.running
}

// round measures the members once, all at the same time. Of the first round, those that have
// answered soon are shown before the others.
func (s *sampler) round() {
	s.mu.Lock()
	members, first := s.mu.members, s.mu.last == nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), sampleInterval)
	defer cancel()
	go func() {
		select {
		case <-s.stopped:
			cancel() // close waits for the round
		case <-ctx.Done():
		}
	}()
	type answer struct {
		id uint64
		*reading
	}
	answers := make(chan answer, len(members))
	for _, id := range members {
		go func() { answers <- answer{id, s.read(ctx, id)} }()
	}
	var soon <-chan time.Time
	if first {
		soon = time.After(firstLook)
	}
	got := map[uint64]*reading{}
	for range members {
		select {
		case a := <-answers:
			got[a.id] = a.reading
		case <-soon:
			s.publish(maps.Clone(got))
			a := <-answers
			got[a.id], soon = a.reading, nil
		}
	}
	s.mu.Lock()
	s.keep(got, time.Now())
	s.mu.Unlock()
	s.publish(got)
}

// keep adds the points and the answers of a round. The caller holds mu.
func (s *sampler) keep(got map[uint64]*reading, now time.Time) {
	points, seen := map[uint64][]point{}, map[uint64]*reading{}
	for id, r := range got {
		if old := s.mu.seen[id]; r.Status == nil && old != nil {
			seen[id] = old
		} else if r.Status != nil {
			seen[id] = r
		}
		list := s.mu.points[id] // of members that were removed nothing is kept
		for len(list) > 0 &&
			(list[0].At < now.Add(-sampleHistory).UnixMilli() || len(list) >= maxPoints) {
			list = list[1:]
		}
		if r.Status != nil {
			list = append(list, makePoint(r, s.mu.last[id], lagOf(r, got)))
		}
		points[id] = list
	}
	s.mu.points, s.mu.seen = points, seen
}

// publish shows readings to the readers.
func (s *sampler) publish(got map[uint64]*reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.last = got
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// Rates and latencies of a point, by their short names.
var (
	rates = map[string]string{"puts": health.Puts, "reads": health.Ranges,
		"transactions": health.Txns, "deletes": health.Deletes, "events": health.Events}
	latencies = map[string]string{"fsync": health.WALFsync, "commit": health.StoreCommit,
		"apply": health.Apply}
)

// makePoint compares two readings of a member, of which the older may be missing.
func makePoint(r, before *reading, lag int64) point {
	p := point{At: r.At.UnixMilli(), Size: r.Status.DbSize,
		Revision: r.Status.Header.GetRevision(), Lag: lag}
	if before == nil || before.Metrics == nil || r.Metrics == nil || r.started != before.started {
		return p
	}
	p.Rates, p.Times = map[string]float64{}, map[string]float64{}
	for name, metric := range rates {
		if v, ok := r.Rate(&before.Reading, metric); ok {
			p.Rates[name] = v
		}
	}
	for name, metric := range latencies {
		now, old := r.Metrics.Histogram(metric), before.Metrics.Histogram(metric)
		if now.Count <= old.Count {
			continue // nothing since
		}
		if d, ok := now.Since(old).Quantile(.99); ok {
			p.Times[name] = d
		}
	}
	return p
}

// lagOf returns how many entries a member has still to apply of those that the leader has; -1 if
// that is not known.
func lagOf(x *reading, all map[uint64]*reading) int64 {
	for _, r := range all {
		if r.Status != nil && r.ID() == x.Status.Leader {
			return max(0, int64(r.Status.RaftIndex)-int64(x.Status.RaftAppliedIndex))
		}
	}
	return -1
}

// measurements are what a sampler has measured: the newest round, of each member the newest answer,
// and the points of the charts.
type measurements struct {
	last, seen map[uint64]*reading
	points     map[uint64][]point
}

// state returns the measurements, and a channel that is closed when there are new ones.
func (s *sampler) state() (now measurements, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return measurements{s.mu.last, s.mu.seen, s.mu.points}, s.mu.changed
}

// sample measures a member.
func (c *Console) sample(ctx context.Context, id uint64) *reading {
	sent := time.Now()
	s, err := c.Sample(ctx, id)
	return read(s, unanswered(err), sent)
}

// calledMember is what errors of calls between members begin with. Lists name the member.
var calledMember = regexp.MustCompile(`^call to member [0-9a-f]+: `)

// unanswered returns the error of a call to a member as a reader needs it.
func unanswered(err error) error {
	if err == nil {
		return nil
	}
	if timeout := (interface{ Timeout() bool })(nil); errors.As(err, &timeout) &&
		timeout.Timeout() {
		return errNoAnswer
	}
	return errors.New(calledMember.ReplaceAllString(err.Error(), ""))
}

// errNoAnswer is why there is nothing of a member that hangs, or cannot be reached.
var errNoAnswer = errors.New("no answer in time")

// memberView is a member with its newest sample.
type memberView struct {
	ID         string   `json:"id"`
	Name       string   `json:"name"`
	PeerURLs   []string `json:"peer_urls"`
	ClientURLs []string `json:"client_urls"`
	Learner    bool     `json:"learner,omitempty"`
	Self       bool     `json:"self,omitempty"`
	Role       string   `json:"role"`
	Lag        int64    `json:"lag"`
	Error      string   `json:"error,omitempty"`
	Points     []point  `json:"points,omitempty"`
	// Answers is set if the member has answered in the newest round. State is its newest answer,
	// which is older if it has not, and At is when that was measured.
	Answers bool         `json:"answers"`
	At      int64        `json:"at,omitempty"`
	State   *memberState `json:"state,omitempty"`
}

// memberState is what a sample of a member shows.
type memberState struct {
	Version         string   `json:"version"`
	Term            uint64   `json:"term"`
	Revision        int64    `json:"revision"`
	CompactRevision int64    `json:"compact_revision"`
	Keys            int64    `json:"keys"`
	Size            int64    `json:"size"`
	InUse           int64    `json:"in_use"`
	Quota           int64    `json:"quota"`
	Watchers        int64    `json:"watchers"`
	Memory          int64    `json:"memory"`
	Errors          []string `json:"errors,omitempty"`
}

// overview is a line of the stream of live numbers. The first has all points, later ones the
// newest.
type overview struct {
	At      int64        `json:"at"`
	First   bool         `json:"first,omitempty"`
	Members []memberView `json:"members"`
	// Alarms are raised for members.
	Alarms []alarm `json:"alarms"`
	// Pending are the names of the members whose first answer is awaited; until then there is no
	// diagnosis.
	Pending []string `json:"pending,omitempty"`
	// Diagnosis has the findings of the command doctor.
	Diagnosis *health.Diagnosis `json:"diagnosis,omitempty"`
	// Since is when the first measurement was taken that the charts show.
	Since int64 `json:"since"`
}

// alarm is an alarm of a member: its ID, and its name as members are called in lists.
type alarm struct {
	Member string `json:"member"`
	Of     string `json:"of"`
	Name   string `json:"name"`
}

// serveLive streams the state of all members, as long as the reader is a user.
func (c *Console) serveLive(r *request, out *lines) error {
	if _, err := c.maintenance.Status(r.ctx, &etcdserverpb.StatusRequest{}); err != nil {
		return err
	}
	first := true
	leave := func() {}
	defer func() { leave() }()
	for {
		// Serializable: a member without a quorum answers too. The list is also the check that the
		// session is still valid.
		list, err := c.cluster.MemberList(r.ctx,
			&etcdserverpb.MemberListRequest{Linearizable: false})
		if err != nil {
			return err
		}
		slices.SortFunc(list.Members, byName) // findings name members in the order of the view
		ids := make([]uint64, len(list.Members))
		for i, m := range list.Members {
			ids[i] = m.ID
		}
		next := c.sampler.join(ids)
		leave()
		leave = next
		now, changed := c.sampler.state()
		if len(now.last) > 0 {
			if err := out.send(c.overview(list.Members, now, first)); err != nil {
				return err
			}
			first = false
		}
		select {
		case <-changed:
		case <-c.sampler.stopped:
			return errClosed
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

func (c *Console) overview(members []*etcdserverpb.Member, now measurements, all bool) *overview {
	o, e := &overview{At: time.Now().UnixMilli(), First: all, Alarms: []alarm{}},
		c.examination(members, now.last)
	names := e.Name
	for _, a := range e.Alarms {
		of := "a member that is not known"
		if a.MemberID != 0 {
			of = names(a.MemberID)
		}
		o.Alarms = append(o.Alarms, alarm{hexadecimal(a.MemberID), of, a.Alarm.String()})
	}
	for _, m := range members {
		v := memberView{ID: hexadecimal(m.ID), Name: m.Name, PeerURLs: m.PeerURLs,
			ClientURLs: m.ClientURLs, Learner: m.IsLearner,
			Self: m.ID == c.Self.Member, Role: "does not answer", Lag: -1, Points: now.points[m.ID]}
		if n := len(v.Points); n > 0 && (o.Since == 0 || v.Points[0].At < o.Since) {
			o.Since = v.Points[0].At
		}
		if n := len(v.Points); !all && n > 1 {
			v.Points = v.Points[n-1:]
		}
		if r := now.seen[m.ID]; r != nil {
			v.State, v.At = r.state(), r.At.UnixMilli()
		}
		r, ok := now.last[m.ID]
		switch {
		case !ok:
			v.Role = "not measured yet"
			o.Pending = append(o.Pending, names(m.ID))
		case r.StatusErr != nil:
			v.Error = r.StatusErr.Error()
			if self := now.last[c.Self.Member]; self != nil &&
				slices.ContainsFunc(self.Failures,
					func(f health.PeerFailure) bool { return f.Member == v.ID && f.Lasts() }) {
				v.Role = "refused"
			}
		default:
			v.Answers, v.At, v.State, v.Role, v.Lag = true, r.At.UnixMilli(), r.state(), r.Role(),
				lagOf(r, now.last)
		}
		o.Members = append(o.Members, v)
	}
	slices.SortFunc(o.Members, func(a, b memberView) int { return cmp.Compare(a.Name, b.Name) })
	if len(o.Pending) == 0 {
		o.Diagnosis = e.Diagnose()
	}
	return o
}

// state returns what a view shows of a member that has answered.
func (r *reading) state() *memberState {
	st := r.Status
	return &memberState{Version: r.version, Term: st.RaftTerm, Revision: st.Header.GetRevision(),
		CompactRevision: int64(r.Value(health.CompactRevision)),
		Keys:            int64(r.Value(keysTotal)), Size: st.DbSize, InUse: st.DbSizeInUse,
		Quota: max(0, st.DbSizeQuota), Watchers: int64(r.Value(health.Watchers)),
		Memory: int64(r.Value(health.ResidentMemory)), Errors: st.Errors}
}
