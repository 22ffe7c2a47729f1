package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/member/stage"
	"vigil/internal/store/wal"
)

// memLog is a Log in memory whose writes can be held up or made to fail.
type memLog struct {
	mu struct {
		sync.Mutex
		hard   *raftpb.HardState
		start  wal.Start
		ents   []*raftpb.Entry
		groups [][]wal.Batch
		err    error // of each Append
		once   error // of the next Append
		read   error // of the next Entries
	}
	gate chan struct{} // if not nil, an Append waits for a value or its close
	// uncached: no entry is in memory. disk, if not nil, makes Entries wait for a value or its
	// close.
	uncached bool
	// oldOnDisk is the index from which on entries are in memory.
	oldOnDisk uint64
	disk      chan struct{}
	// delay is how long an Append takes.
	delay time.Duration
	// pace is how long an Append takes from now on, hung, if not nil, what it waits for until that
	// is closed.
	pace atomic.Int64
	hung atomic.Pointer[chan struct{}]
}

// hang lets appends wait, those under way excepted, until the returned function is called.
func (l *memLog) hang() (resume func()) {
	c := make(chan struct{})
	l.hung.Store(&c)
	return func() {
		l.hung.Store(nil)
		close(c)
	}
}

func newMemLog(start wal.Start) *memLog {
	l := &memLog{}
	l.mu.start = start
	return l
}

func (l *memLog) HardState() *raftpb.HardState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.hard
}

func (l *memLog) FirstIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.start.Index + 1, nil
}

func (l *memLog) LastIndex() (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.start.Index + uint64(len(l.mu.ents)), nil
}

func (l *memLog) Term(i uint64) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case i == l.mu.start.Index:
		return l.mu.start.Term, nil
	case i < l.mu.start.Index:
		return 0, raft.ErrCompacted
	case i > l.mu.start.Index+uint64(len(l.mu.ents)):
		return 0, raft.ErrUnavailable
	}
	return l.mu.ents[i-l.mu.start.Index-1].GetTerm(), nil
}

func (l *memLog) Cached(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lo <= l.mu.start.Index || !l.uncached && l.mu.read == nil && lo >= l.oldOnDisk {
		return l.entries(lo, hi, maxBytes)
	}
	return nil, nil
}

func (l *memLog) Outline(lo, hi uint64) ([]*raftpb.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ents, err := l.entries(lo, hi, math.MaxUint64)
	for i, e := range ents {
		ents[i] = &raftpb.Entry{Index: e.Index, Term: e.Term, Type: e.Type}
	}
	return ents, err
}

func (l *memLog) Entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	if l.disk != nil {
		<-l.disk
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.read != nil {
		return nil, l.mu.read
	}
	return l.entries(lo, hi, maxBytes)
}

func (l *memLog) entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	switch {
	case lo <= l.mu.start.Index:
		return nil, raft.ErrCompacted
	case hi > l.mu.start.Index+uint64(len(l.mu.ents))+1:
		return nil, raft.ErrUnavailable
	}
	var out []*raftpb.Entry
	var size uint64
	for _, e := range l.mu.ents[lo-l.mu.start.Index-1 : hi-l.mu.start.Index-1] {
		if size += uint64(len(e.GetData())); len(out) > 0 && size > maxBytes {
			break
		}
		out = append(out, e)
	}
	return out, nil
}

func (l *memLog) Append(batches ...wal.Batch) error {
	if l.gate != nil {
		<-l.gate
	}
	if c := l.hung.Load(); c != nil {
		<-*c
	}
	time.Sleep(l.delay + time.Duration(l.pace.Load()))
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.mu.once; err != nil {
		l.mu.once = nil
		return err
	}
	if l.mu.err != nil {
		return l.mu.err
	}
	l.mu.groups = append(l.mu.groups, append([]wal.Batch(nil), batches...))
	for _, b := range batches {
		if b.Snapshot != nil {
			l.mu.start, l.mu.ents = *b.Snapshot, nil
		}
		if b.HardState != nil {
			l.mu.hard = b.HardState
		}
		for _, e := range b.Entries {
			l.mu.ents = append(l.mu.ents[:e.GetIndex()-l.mu.start.Index-1], e)
		}
	}
	return nil
}

// truncate gives up the entries up to index.
func (l *memLog) truncate(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := int(index - l.mu.start.Index); index > l.mu.start.Index && n <= len(l.mu.ents) {
		l.mu.start = wal.Start{Index: index, Term: l.mu.ents[n-1].GetTerm()}
		l.mu.ents = append([]*raftpb.Entry(nil), l.mu.ents[n:]...)
	}
}

func (l *memLog) groups() [][]wal.Batch {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.groups
}

func (l *memLog) fail(write, read error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.err, l.mu.read = write, read
}

// failOnce lets the next append fail.
func (l *memLog) failOnce(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.once = err
}

// source is a Proposals that reuses one buffer, to show that the node keeps none.
type source struct {
	mu struct {
		sync.Mutex
		waiting [][]byte
		dropped int
		refused []string
	}
	buf  []byte
	many atomic.Bool // requests are under way, so the goroutines of the line work concurrently
}

func (s *source) Outstanding(uint64) int { return 0 }

func (s *source) NextGroup(uint64) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.waiting) == 0 {
		return nil
	}
	copy(s.buf, bytes.Repeat([]byte{'?'}, len(s.buf)))
	s.buf = append(s.buf[:0], s.mu.waiting[0]...)
	s.mu.waiting = s.mu.waiting[1:]
	return s.buf
}

func (s *source) FailOffered() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.dropped++
}

func (s *source) StampGroup(uint64, []byte) {}

func (s *source) FailRefused(head []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.refused = append(s.mu.refused, string(head))
}

func (s *source) put(data string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.waiting = append(s.mu.waiting, []byte(data))
}

// member is a node with a state machine that remembers what was applied.
type member struct {
	*Node
	log    *memLog
	source *source
	// leaves is set while prompt goroutines leave runs to others.
	leaves atomic.Bool
	// gate has room for one: what is in it keeps runs from being applied.
	gate     chan struct{}
	proposed int
	// pace is how long an entry takes to be applied.
	pace atomic.Int64
	mu   struct {
		sync.Mutex
		applied []string
		index   uint64
		// aside is a state that was received, and installs counts those that were installed.
		aside    []string
		installs int
	}
	moved sync.Cond
}

// propose proposes, in each of the ways in turn.
func (m *member) propose(data string) {
	m.source.put(data)
	if m.source.many.Load() {
		m.Wake()
		return
	}
	switch m.proposed++; m.proposed % 3 {
	case 0:
		m.Wake()
	case 1:
		m.Propose()
	case 2:
		go m.Propose(m.Stages()...)
	}
}

// Apply implements Machine.
func (m *member) Apply(run []*raftpb.Message, prompt bool) error {
	if prompt && m.leaves.Load() {
		return ErrLeft
	}
	if !m.carryOut(run) {
		return ErrStopped
	}
	return nil
}

func (m *member) carryOut(run []*raftpb.Message) bool {
	m.gate <- struct{}{}
	<-m.gate
	for _, msg := range run {
		if s := msg.GetSnapshot(); s != nil {
			m.mu.Lock()
			if s.GetMetadata().GetIndex() <= m.mu.index {
				panic(fmt.Sprintf("a snapshot at %d after entry %d",
					s.GetMetadata().GetIndex(), m.mu.index))
			}
			m.mu.index, m.mu.applied = s.GetMetadata().GetIndex(), m.mu.aside
			m.mu.installs++
			m.mu.Unlock()
			m.moved.Broadcast()
		}
		for _, e := range msg.GetEntries() {
			if pace := time.Duration(m.pace.Load()); pace > 0 {
				time.Sleep(pace)
				m.Advance()
			}
			if e.GetType() == raftpb.EntryConfChangeV2 {
				var cc raftpb.ConfChangeV2
				if err := unmarshal(e.GetData(), &cc); err != nil {
					panic(err)
				}
				if err := m.ApplyConfChange(e.GetIndex(), &cc); err != nil {
					return false
				}
			}
			m.mu.Lock()
			if e.GetIndex() != m.mu.index+1 {
				panic(fmt.Sprintf("entry %d was applied after %d", e.GetIndex(), m.mu.index))
			}
			m.mu.index = e.GetIndex()
			if e.GetType() == raftpb.EntryNormal && len(e.GetData()) > 0 {
				m.mu.applied = append(m.mu.applied, string(e.GetData()))
			}
			m.mu.Unlock()
			m.moved.Broadcast()
		}
	}
	m.Applied(run)
	return true
}

// holdApplying keeps runs that are handed out from now on from being applied.
func (m *member) holdApplying() (release func()) {
	m.gate <- struct{}{}
	return func() { <-m.gate }
}

// conf returns raft's configuration.
func (m *member) conf() (cs *raftpb.ConfState) {
	_ = m.runInTurn(func(c *core) { cs = c.storage.conf })
	return cs
}

func (m *member) applied() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.mu.applied...)
}

func (m *member) index() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.index
}

// single starts the only member of a cluster inside a synctest bubble.
func startMember(t *testing.T, log *memLog, change func(*Config)) *member {
	t.Helper()
	m := &member{log: log, source: &source{}, gate: make(chan struct{}, 1)}
	m.moved.L = &m.mu
	ticker := time.NewTicker(100 * time.Millisecond)
	cfg := Config{
		ID:        1,
		Log:       log,
		ConfState: &raftpb.ConfState{Voters: []uint64{1}},
		Applied:   log.mu.start.Index,
		Ticks:     ticker.C,
		Line:      stage.NewLine(),
		Proposals: m.source,
		Machine:   m,
		Logger:    slog.New(failing{t}),
	}
	if change != nil {
		change(&cfg)
	}
	m.mu.index = cfg.Applied
	n, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m.Node = n
	cfg.Line.Start()
	n.Start()
	t.Cleanup(func() {
		n.Stop()
		cfg.Line.Close()
		ticker.Stop()
	})
	return m
}

// failing is a log handler that fails the test on a line at error.
type failing struct{ t testing.TB }

func (f failing) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (f failing) Handle(_ context.Context, r slog.Record) error {
	f.t.Errorf("logged at error: %s", r.Message)
	return nil
}
func (f failing) WithAttrs([]slog.Attr) slog.Handler { return f }
func (f failing) WithGroup(string) slog.Handler      { return f }

func TestSingleVoterLeadsAtOnceAndCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), nil)
		m.propose("a")
		m.propose("b")
		synctest.Wait()
		if got := m.applied(); strings.Join(got, " ") != "a b" {
			t.Errorf("applied %q", got)
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}
		st := m.Status()
		if st.Lead != 1 || st.Term != 2 || st.Committed != m.index() {
			t.Errorf("status %+v, applied %d", st, m.index())
		}
	})
}

func TestNothingIsCommittedBeforeItsSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, func(c *Config) { c.MaxInFlight = 3 })
		m.source.many.Store(true)
		synctest.Wait()
		before := len(log.groups())
		log.gate = make(chan struct{})
		m.propose("a")
		synctest.Wait()
		m.propose("b")
		synctest.Wait()
		m.propose("c")
		m.propose("too many in flight")
		synctest.Wait()
		if got := m.applied(); len(got) != 0 {
			t.Fatalf("applied %q before the log was written", got)
		}
		log.gate <- struct{}{}
		synctest.Wait()
		if got := m.applied(); strings.Join(got, " ") != "a" {
			t.Fatalf("applied %q after the first append", got)
		}
		// b and c waited for the first append: they are one group now.
		log.gate <- struct{}{}
		synctest.Wait()
		if got := m.applied(); strings.Join(got, " ") != "a b c" {
			t.Fatalf("applied %q after the second append", got)
		}
		close(log.gate)
		synctest.Wait()
		if got := m.applied(); len(got) != 4 {
			t.Fatalf("applied %q", got)
		}
		groups := log.groups()[before:]
		if len(groups) != 3 || len(groups[0]) != 1 || len(groups[1]) != 2 {
			t.Errorf("groups %v", groups)
		}
		for _, g := range groups {
			for _, b := range g {
				if !b.Sync {
					t.Errorf("batch %v is not synced", b)
				}
			}
		}
	})
}

func TestAFailedWriteEndsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("the disk is gone")
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, nil)
		synctest.Wait()
		log.fail(boom, nil)
		m.propose("a")
		<-m.Failed()
		if !errors.Is(m.Err(), boom) {
			t.Errorf("error %v", m.Err())
		}
		<-m.dead
		if got := m.applied(); len(got) != 0 {
			t.Errorf("applied %q", got)
		}
		if _, err := m.ReadIndex(t.Context()); !errors.Is(err, ErrStopped) {
			t.Errorf("a read of a failed node: %v", err)
		}
		if err := m.ApplyConfChange(9, &raftpb.ConfChangeV2{}); !errors.Is(err, ErrStopped) {
			t.Errorf("a configuration change of a failed node: %v", err)
		}
	})
}

func TestAFailedReadOfTheLogEndsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		boom := errors.New("sector not found")
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, nil)
		synctest.Wait()
		log.fail(nil, boom)
		m.propose("a")
		<-m.Failed()
		if !errors.Is(m.Err(), boom) {
			t.Errorf("error %v", m.Err())
		}
	})
}

func TestNewRefuses(t *testing.T) {
	log := newMemLog(wal.Start{Index: 10, Term: 1})
	if err := log.Append(wal.Batch{Entries: []*raftpb.Entry{{Index: new(uint64(11)),
		Term: new(uint64(1))}}}); err != nil {
		t.Fatal(err)
	}
	good := Config{ID: 1, Log: log, ConfState: &raftpb.ConfState{Voters: []uint64{1}}, Applied: 10,
		Ticks: make(chan time.Time), Line: stage.NewLine(), Proposals: &source{},
		Machine: &recorder{}}
	if n, err := New(good); err != nil {
		t.Fatal(err)
	} else {
		n.Stop() // without Start
	}
	for text, change := range map[string]func(*Config){
		"no member id":              func(c *Config) { c.ID = 0 },
		"at index 9 and the log be": func(c *Config) { c.Applied = 9 },
		"at index 12 and the log e": func(c *Config) { c.Applied = 12 },
		"no clock":                  func(c *Config) { c.Ticks = nil },
		"election of 1 ticks":       func(c *Config) { c.ElectionTicks = 1 },
	} {
		c := good
		change(&c)
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A restarted member finds entries after its last known commit index that it acknowledged in its
// former life. A read must not be served before they are known to be committed.
func TestNoReadIndexBeforeTheFirstCommitOfTheTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		var ents []*raftpb.Entry
		for i := range uint64(5) {
			ents = append(ents, &raftpb.Entry{Index: new(2 + i), Term: new(uint64(2)),
				Data: []byte{'a' + byte(i)}})
		}
		err := log.Append(wal.Batch{Entries: ents,
			HardState: &raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(1)),
				Commit: new(uint64(1))}})
		if err != nil {
			t.Fatal(err)
		}
		log.gate = make(chan struct{})
		m := startMember(t, log, nil)
		type answer struct {
			index uint64
			err   error
		}
		got := make(chan answer, 1)
		go func() {
			i, err := m.ReadIndex(t.Context())
			got <- answer{i, err}
		}()
		for step := range 3 { // pre-vote needs no write; vote, first entry
			synctest.Wait()
			select {
			case a := <-got:
				if a.err != nil || a.index < 6 {
					t.Fatalf("after %d writes: read index %d, %v; the log holds entries up to 6",
						step, a.index, a.err)
				}
				if step == 0 {
					t.Fatal("a read index before anything was written")
				}
				close(log.gate)
				return
			case log.gate <- struct{}{}:
			}
		}
		a := <-got
		if a.err != nil || a.index < 6 {
			t.Fatalf("read index %d, %v", a.index, a.err)
		}
		close(log.gate)
	})
}

func TestReadIndexOfASingleVoterIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), nil)
		m.propose("a")
		synctest.Wait()
		if n := testing.AllocsPerRun(100, func() {
			if i, err := m.ReadIndex(t.Context()); err != nil || i != m.index() {
				t.Fatalf("index %d, %v", i, err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

func TestReadIndexWaitsForALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		// Two voters and only one of them here: no member can be elected.
		m := startMember(t, log,
			func(c *Config) { c.ConfState = &raftpb.ConfState{Voters: []uint64{1, 2}} })
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := m.ReadIndex(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		m.propose("a")
		synctest.Wait()
		m.source.mu.Lock()
		defer m.source.mu.Unlock()
		if len(m.source.mu.waiting) != 1 {
			t.Error("a proposal was taken while there is no leader")
		}
	})
}

func TestConfChangeReachesRaftBeforeItIsAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := startMember(t, newMemLog(wal.Start{Index: 1, Term: 1}), nil)
		synctest.Wait()
		add := func(id uint64) error {
			_, err := m.ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
				Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(id)}}})
			return err
		}
		for id := uint64(2); id < 5; id++ {
			if err := add(id); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := uint64(len(m.conf().GetLearners())); got != id-1 {
				t.Fatalf("configuration %v after adding %d: was one ignored because the one before looked unapplied?", m.conf(), id)
			}
		}
		if i, err := m.ReadIndex(t.Context()); err != nil || i != m.index() {
			t.Errorf("learners do not vote: read index %d, %v", i, err)
		}
	})
}

// Proposals of the leader that exceed the bound of what is uncommitted wait, in order, and none
// fails.
func TestProposalsBeyondTheUncommittedBoundWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, func(c *Config) { c.MaxInFlight, c.MaxUncommitted = 100, 10 })
		synctest.Wait()
		log.gate = make(chan struct{})
		want := []string{"12345678", "87654321", "larger than the bound", "1", "2", "3",
			"987654321", "4"}
		for _, data := range want {
			m.propose(data)
		}
		synctest.Wait()
		if got := m.applied(); len(got) != 0 {
			t.Errorf("applied %q before the log has it", got)
		}
		close(log.gate)
		synctest.Wait()
		m.source.mu.Lock()
		dropped := m.source.mu.dropped
		m.source.mu.Unlock()
		if got := m.applied(); !slices.Equal(got, want) || dropped != 0 {
			t.Errorf("applied %q, want %q; %d were dropped", got, want, dropped)
		}
	})
}

// Acknowledged lazily or not, raft hands out at most MaxApplying bytes and never stalls.
func TestApplyingIsBoundedAndDoesNotStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, func(c *Config) { c.MaxInFlight, c.MaxApplying = 4, 1000 })
		start := time.Now()
		for i := range 200 {
			m.propose(fmt.Sprintf("%0100d", i))
		}
		synctest.Wait()
		if got := m.applied(); len(got) != 200 || time.Since(start) != 0 {
			t.Errorf("%d applied after %v", len(got), time.Since(start))
		}
	})
}
