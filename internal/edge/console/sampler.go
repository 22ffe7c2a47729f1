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

// point is what a chart shows about a member at one time.
type point struct {
	// in milliseconds since 1970, by the clock of the member that the browser is connected to
	At int64 `json:"at"`
	// Rates are per second since the previous point. Times are the 99th percentiles in seconds.
	Rates map[string]float64 `json:"rates,omitempty"`
	Times map[string]float64 `json:"times,omitempty"`
	// Size and Revision describe the store.
	Size     int64 `json:"size"`
	Revision int64 `json:"revision"`
	Lag      int64 `json:"lag"`
}

// sampler measures all members while there are readers.
type sampler struct {
	// read measures a member. stopped is closed with the console. Both are set before use.
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
		// nil while the sampler does not run: its old results do not show the present
		last    map[uint64]*reading
		seen    map[uint64]*reading // the newest reading with an answer of each member
		points  map[uint64][]point  // the newest last, at most maxPoints
		changed chan struct{}       // closed after a round
	}
}

// join adds a reader. The sampler measures the members until leave is called.
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
		s.rounds.Go(s.runRounds)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.mu.readers--
		s.mu.left = time.Now()
	}
}

// runRounds measures until there has been no reader for a while.
func (s *sampler) runRounds() {
	t := time.NewTicker(sampleInterval)
	defer t.Stop()
	for s.keepRunning() {
		s.measureMembers()
		select {
		case <-t.C:
		case <-s.stopped:
		}
	}
}

// close ends the measurements and the streams that wait for them.
func (s *sampler) close() {
	s.mu.Lock()
	if !s.mu.closed {
		s.mu.closed = true
		close(s.stopped)
	}
	s.mu.Unlock()
	s.rounds.Wait()
}

// keepRunning reports whether there is a reader or was one recently. Otherwise it marks the sampler
// as stopped.
func (s *sampler) keepRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.running = !s.mu.closed &&
		(s.mu.readers > 0 || time.Since(s.mu.left) < sampleLinger); !s.mu.running {
		s.mu.last = nil
	}
	return s.mu.running
}

// measureMembers measures the members once, concurrently. In the first round it soon shows the
// answers that have arrived, without waiting for the others.
func (s *sampler) measureMembers() {
	s.mu.Lock()
	members, first := s.mu.members, s.mu.last == nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), sampleInterval)
	defer cancel()
	go func() {
		select {
		case <-s.stopped:
			cancel() // close waits for this round
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
			s.showReadings(maps.Clone(got))
			a := <-answers
			got[a.id], soon = a.reading, nil
		}
	}
	s.mu.Lock()
	s.keepRound(got, time.Now())
	s.mu.Unlock()
	s.showReadings(got)
}

// keepRound adds the points and answers of a round. The caller holds mu.
func (s *sampler) keepRound(got map[uint64]*reading, now time.Time) {
	points, seen := map[uint64][]point{}, map[uint64]*reading{}
	for id, r := range got {
		if old := s.mu.seen[id]; r.Status == nil && old != nil {
			seen[id] = old
		} else if r.Status != nil {
			seen[id] = r
		}
		list := s.mu.points[id] // drops members that were removed
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

// showReadings shows readings to the readers.
func (s *sampler) showReadings(got map[uint64]*reading) {
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

// makePoint compares two readings of a member. The older one may be missing.
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
			continue // no observations since
		}
		if d, ok := now.Since(old).Quantile(.99); ok {
			p.Times[name] = d
		}
	}
	return p
}

// lagOf returns how many of the leader's entries a member still has to apply, -1 if unknown.
func lagOf(x *reading, all map[uint64]*reading) int64 {
	for _, r := range all {
		if r.Status != nil && r.ID() == x.Status.Leader {
			return max(0, int64(r.Status.RaftIndex)-int64(x.Status.RaftAppliedIndex))
		}
	}
	return -1
}

// measurements are the results of a sampler: the newest round, the newest answer of each member,
// and the points of the charts.
type measurements struct {
	last, seen map[uint64]*reading
	points     map[uint64][]point
}

// measurements returns the measurements, and a channel that is closed when there are newer ones.
func (s *sampler) measurements() (now measurements, changed <-chan struct{}) {
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

// calledMember is the prefix of errors of calls between members. Lists already name the member.
var calledMember = regexp.MustCompile(`^call to member [0-9a-f]+: `)

// unanswered converts the error of a call to a member to a form for readers.
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

// errNoAnswer is the error for a member that hangs or cannot be reached.
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
	// Answers is set if the member answered in the newest round. State is its newest answer, which
	// may be from an older round, and At is the time of that answer.
	Answers bool         `json:"answers"`
	At      int64        `json:"at,omitempty"`
	State   *memberState `json:"state,omitempty"`
}

// memberState shows a member's sample.
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

// overview is a line in the stream of live numbers. The first has all points, later ones only the
// newest.
type overview struct {
	At      int64        `json:"at"`
	First   bool         `json:"first,omitempty"`
	Members []memberView `json:"members"`
	// Alarms are raised for members.
	Alarms []alarm `json:"alarms"`
	// Pending are the names of the members whose first answer has not arrived. Until it does there
	// is no diagnosis.
	Pending []string `json:"pending,omitempty"`
	// Diagnosis has the findings of the command doctor.
	Diagnosis *health.Diagnosis `json:"diagnosis,omitempty"`
	// Since is the time of the oldest measurement in the charts.
	Since int64 `json:"since"`
}

// alarm is an alarm of a member: the member's ID, and its name as in lists.
type alarm struct {
	Member string `json:"member"`
	Of     string `json:"of"`
	Name   string `json:"name"`
}

// serveLive streams the state of all members, as long as the reader's session is valid.
func (c *Console) serveLive(r *request, out *lines) error {
	if _, err := c.maintenance.Status(r.ctx, &etcdserverpb.StatusRequest{}); err != nil {
		return err
	}
	first := true
	leave := func() {}
	defer func() { leave() }()
	for {
		// Serializable: a member without a quorum also answers. The call also checks that the
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
		now, changed := c.sampler.measurements()
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
			v.State, v.At = r.memberState(), r.At.UnixMilli()
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
			v.Answers, v.At, v.State, v.Role, v.Lag = true, r.At.UnixMilli(),
				r.memberState(), r.Role(),
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

// memberState returns the state that a view shows for a member that has answered.
func (r *reading) memberState() *memberState {
	st := r.Status
	return &memberState{Version: r.version, Term: st.RaftTerm, Revision: st.Header.GetRevision(),
		CompactRevision: int64(r.Value(health.CompactRevision)),
		Keys:            int64(r.Value(keysTotal)), Size: st.DbSize, InUse: st.DbSizeInUse,
		Quota: max(0, st.DbSizeQuota), Watchers: int64(r.Value(health.Watchers)),
		Memory: int64(r.Value(health.ResidentMemory)), Errors: st.Errors}
}
