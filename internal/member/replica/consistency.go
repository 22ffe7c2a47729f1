package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/calls"
)

const (
	// compareRest is how many times as long as this member was reading for a comparison there is none after it: so that
	// takes at most a fiftieth of the time, however large the store is. Waiting for others costs nothing.
	compareRest = 50
	// undecidedInterval is how soon members that differ are compared again if nobody can tell who is wrong:
	// one that could not be asked may be back.
	undecidedInterval = 30 * time.Second
	// initialCheckTimeout bounds how long a start waits for others to compare with.
	initialCheckTimeout = 10 * time.Second
)

// ErrInconsistent says that this member's data differ from those of a majority.
var ErrInconsistent = errors.New("found data inconsistency with peers")

// consistency is what a member knows of how it compares with others.
type consistency struct {
	// compacted is the newest compaction whose hashes were found equal on all members.
	compacted int64
	// reading is how long this member has read its store to compare it, in nanoseconds.
	reading atomic.Int64
	// rounds counts comparisons of the newest state, differences those that found members to differ.
	rounds, differences atomic.Uint64

	// untrusted is set while CORRUPT names this member, there are others, and damage on disk is not why:
	// what it holds can be read and is wrong.
	untrusted atomic.Bool
	mu        struct {
		sync.Mutex
		named   bool
		changed chan struct{} // closed when untrusted changes
	}
}

func (c *consistency) init() { c.mu.changed = make(chan struct{}) }

// name says whether CORRUPT names this member, and whether that is because of damage, if it is new.
func (c *consistency) name(named, damaged bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if named == c.mu.named {
		return
	}
	c.mu.named = named
	if untrusted := named && !damaged; untrusted != c.untrusted.Load() {
		c.untrusted.Store(untrusted)
		close(c.mu.changed)
		c.mu.changed = make(chan struct{})
	}
}

// Untrusted reports whether this member must not serve because its data differ from those of the
// others, and returns a channel that is closed when that changes.
func (r *Replica) Untrusted() (bool, <-chan struct{}) {
	c := &r.consistency
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.untrusted.Load(), c.mu.changed
}

// compare is the goroutine that compares members, while this one leads.
func (r *Replica) compare(ctx context.Context) {
	select {
	case <-r.ready:
	case <-ctx.Done():
		return
	}
	full := every(r.cfg.CompareInterval)
	defer full.Stop()
	quick := every(r.cfg.CompareCompactionsInterval)
	defer quick.Stop()
	yield := time.NewTicker(time.Duration(r.cfg.ElectionTicks) * r.cfg.TickInterval)
	defer yield.Stop()
	led := uint64(0) // the last term that this member led in
	for {
		compactions := false
		select {
		case <-ctx.Done():
			return
		case <-r.stopping:
			return
		case <-yield.C:
			if st := r.node.Status(); st.Lead == r.memberID && st.Term > led {
				led = st.Term
				if r.cfg.CompareCompactionsInterval > 0 {
					quick.Reset(time.Nanosecond) // a new leader looks at once
				}
			}
			// What it proposes about leases is refused.
			if r.alarmed(kv.Alarm{MemberID: r.memberID, Type: kv.AlarmCorrupt}) {
				r.HandOver(ctx)
			}
			continue
		case <-quick.C:
			compactions = true
		case <-full.C:
		}
		read := r.consistency.reading.Load()
		undecided := r.node.Status().Lead == r.memberID && r.compareAsLeader(ctx, compactions)
		if compactions {
			quick.Reset(r.cfg.CompareCompactionsInterval)
		}
		if next := r.cfg.CompareInterval; next > 0 && (undecided || !compactions) {
			if undecided {
				next = min(next, undecidedInterval)
			}
			full.Reset(max(next, compareRest*time.Duration(r.consistency.reading.Load()-read)))
		}
	}
}

// every returns a timer, which never fires if the interval is negative.
func every(d time.Duration) *time.Timer {
	t := time.NewTimer(max(d, time.Hour))
	t.Stop()
	if d > 0 {
		t.Reset(d)
	}
	return t
}

// compareAsLeader reports whether members differ and nobody can tell who is wrong.
func (r *Replica) compareAsLeader(ctx context.Context, compactions bool) (undecided bool) {
	if compactions && !r.compactionsDiffer(ctx) && !r.standingsDiffer(ctx) {
		return false
	}
	undecided, err := r.compareState(ctx)
	if err != nil && ctx.Err() == nil {
		r.cfg.Logger.Warn("comparing members failed; it is tried again", slog.Any("error", err))
	}
	return undecided
}

// others returns the ids of all members, of the voters, and how many members beside this one there are.
func (r *Replica) others() (voters, members []uint64, n int) {
	for _, m := range r.members.Load().Members() {
		if members = append(members, m.ID); !m.Learner {
			voters = append(voters, m.ID)
		}
		if m.ID != r.memberID {
			n++
		}
	}
	return voters, members, n
}

// compareState compares the newest state of all members, has the alarms raised and cleared that follow, and
// reports what compareAsLeader does.
// What differs is looked at twice, so that nobody is named for what was about to be replaced.
func (r *Replica) compareState(ctx context.Context) (undecided bool, err error) {
	none := func([]finding) bool { return false }
	voters, members, n := r.others()
	if n == 0 {
		r.clearStale(ctx, members)
		return false, nil
	}
	known := func(f finding) bool { return r.alarmed(kv.Alarm{MemberID: f.id, Type: kv.AlarmCorrupt}) }
	look := func() (hashQuestion, verdict, error) {
		q, found, err := r.askHashes(ctx, false, none)
		return q, judge(voters, members, slices.DeleteFunc(found, known)), err
	}
	began := time.Now()
	q, v, err := look()
	if err != nil {
		return false, err
	}
	r.consistency.rounds.Add(1)
	if len(v.differ) > 0 {
		first := v
		if q, v, err = look(); err != nil {
			return false, err
		}
		v.differ = slices.DeleteFunc(v.differ, func(f finding) bool {
			return !slices.ContainsFunc(first.differ, func(b finding) bool { return b.id == f.id })
		})
	}
	log := r.cfg.Logger.With(slog.Int64("revision", q.revision), slog.Int64("compact-revision", q.compact))
	log.Info("finished peer corruption check", slog.Int("number-of-peers-checked", max(v.heard-1, 0)), slog.Int("number-of-peers", n),
		slog.Duration("took", time.Since(began)))
	switch {
	case v.unanimous():
		r.clearStale(ctx, members)
	case len(v.differ) == 0:
	case v.decided:
		r.consistency.differences.Add(1)
		for _, f := range v.differ {
			log.Error("the data of a member differ from those of the majority: it must not serve", memberAttr(f.id),
				slog.String("hash", f.String()), slog.String("majority-hash", v.right.String()))
			r.proposeAlarm(ctx, &kv.AlarmChange{Alarm: kv.Alarm{MemberID: f.id, Type: kv.AlarmCorrupt}}, memberAttr(f.id))
		}
		if nobody := (kv.Alarm{Type: kv.AlarmCorrupt}); r.alarmed(nobody) {
			r.proposeAlarm(ctx, &kv.AlarmChange{Alarm: nobody, Clear: true})
		}
	default:
		r.consistency.differences.Add(1)
		log.Error("members differ and there is no majority to judge by: all go on", slog.String("hashes", list(v.differ)))
		if nobody := (kv.Alarm{Type: kv.AlarmCorrupt}); !r.alarmed(nobody) {
			r.proposeAlarm(ctx, &kv.AlarmChange{Alarm: nobody})
		}
		return true, nil
	}
	return false, nil
}

// list says what members have, for people.
func list(found []finding) string {
	var parts []string
	for _, f := range found {
		parts = append(parts, fmt.Sprintf("%x: %s", f.id, f))
	}
	return strings.Join(parts, ", ")
}

// clearStale clears the alarms about differences that are gone: that of nobody, and those of members that
// are gone. That of a member that is there may be about its disk.
func (r *Replica) clearStale(ctx context.Context, members []uint64) {
	for _, a := range r.ActiveAlarms() {
		if a.Type == kv.AlarmCorrupt && !slices.Contains(members, a.MemberID) {
			r.proposeAlarm(ctx, &kv.AlarmChange{Alarm: a, Clear: true}, memberAttr(a.MemberID))
		}
	}
}

// compactionsDiffer compares the hashes that compactions have left, which costs nothing, and reports whether
// any differ. That is no verdict: what differed may be compacted by now.
func (r *Replica) compactionsDiffer(ctx context.Context) bool {
	own := r.now().store.CompactionHashes()
	own = slices.DeleteFunc(own, func(h kv.HashResult) bool { return h.HashRevision <= r.consistency.compacted })
	_, members, n := r.others()
	if len(own) == 0 || n == 0 {
		return false
	}
	same := make([]int, len(own)) // how many members have an equal hash
	differ := false
	n = 0
	for _, id := range members {
		if id == r.memberID || r.alarmed(kv.Alarm{MemberID: id, Type: kv.AlarmCorrupt}) {
			continue
		}
		n++
		b, err := r.cfg.SnapshotTransport.Call(ctx, id, calls.Hashes, []byte{askCompactions})
		if err != nil {
			continue
		}
		theirs, err := decodeCompactions(b)
		if err != nil {
			continue
		}
		for i, o := range own {
			for _, t := range theirs {
				switch {
				case t.HashRevision != o.HashRevision || t.CompactRevision != o.CompactRevision:
				case t.Hash == o.Hash:
					same[i]++
				default:
					differ = true
					r.cfg.Logger.Error("members have left different hashes of a compaction; comparing all they have", memberAttr(id),
						slog.Int64("revision", o.HashRevision), slog.Int64("compact-revision", o.CompactRevision),
						slog.String("hash", fmt.Sprintf("%08x", o.Hash)), slog.String("remote-hash", fmt.Sprintf("%08x", t.Hash)))
				}
			}
		}
	}
	for i, o := range own {
		if differ || same[i] == n {
			// Looked at once: what a difference means is found out now.
			r.consistency.compacted = max(r.consistency.compacted, o.HashRevision)
		}
	}
	r.cfg.Logger.Info("finished compaction hash check", slog.Int("number-of-hashes-checked", len(own)))
	return differ
}

// standingsDiffer reports whether a member lacks a revision that another one has had before. That costs no reading.
func (r *Replica) standingsDiffer(ctx context.Context) bool {
	voters, members, n := r.others()
	if n == 0 {
		return false
	}
	_, found, err := r.askHashes(ctx, true, func([]finding) bool { return false })
	found = slices.DeleteFunc(found, func(f finding) bool { return r.alarmed(kv.Alarm{MemberID: f.id, Type: kv.AlarmCorrupt}) })
	v := judge(voters, members, found)
	if err != nil || len(v.differ) == 0 {
		return false
	}
	r.cfg.Logger.Error("members have other revisions at the same index; comparing all they have", slog.String("revisions", list(found)))
	return true
}

// initialCheck compares this member with those that are up, before it serves. They answer while they start
// themselves. A majority against it is an error; anything less is left to the leader.
func (r *Replica) initialCheck(ctx context.Context) error {
	voters, members, n := r.others()
	if n == 0 || r.cfg.SnapshotTransport == nil || r.cfg.NoInitialCheck {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, initialCheckTimeout)
	defer cancel()
	defer r.onStop(cancel)()
	known := func(f finding) bool {
		return f.id != r.memberID && r.alarmed(kv.Alarm{MemberID: f.id, Type: kv.AlarmCorrupt})
	}
	look := func() (hashQuestion, verdict, []finding, error) {
		q, found, err := r.askHashes(ctx, false, func(f []finding) bool {
			return judge(voters, members, f).decided && slices.ContainsFunc(f, func(f finding) bool { return f.id == r.memberID })
		})
		found = slices.DeleteFunc(found, known)
		return q, judge(voters, members, found), found, err
	}
	r.cfg.Logger.Info("starting initial corruption check", slog.Duration("timeout", initialCheckTimeout))
	q, v, found, err := look()
	if err == nil && v.wrong(r.memberID) {
		q, v, found, err = look()
	}
	switch log := r.cfg.Logger.With(slog.Int64("revision", q.revision), slog.Int64("compact-revision", q.compact)); {
	case err != nil:
		log.Warn("the initial corruption check could not be finished", slog.Any("error", err))
	case v.wrong(r.memberID):
		r.consistency.differences.Add(1)
		own := kv.Alarm{MemberID: r.memberID, Type: kv.AlarmCorrupt}
		if !r.alarmed(own) {
			r.proposeAlarm(ctx, &kv.AlarmChange{Alarm: own})
		}
		return fmt.Errorf("replica: member %x %w: at revision %d, compact revision %d, the hashes are %s: remove it from the cluster, add it again and start it with an empty data directory",
			r.memberID, ErrInconsistent, q.revision, q.compact, list(found))
	case len(v.differ) > 0:
		log.Warn("members differ; the leader looks into it", slog.String("hashes", list(found)))
	case v.heard < 2:
		log.Info("the initial corruption check found nobody to compare with")
	default:
		log.Info("initial corruption checking passed; no corruption", slog.Int("number-of-peers-checked", v.heard-1))
	}
	return nil
}
