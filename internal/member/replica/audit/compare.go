package audit

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/calls"
)

const (
	// compareRest is the pause after a comparison, in multiples of the time that this member read
	// its store for it. So comparisons take at most a fiftieth of the time, however large the store
	// is. Waiting for others costs nothing.
	compareRest = 50
	// undecidedInterval is how soon the leader again compares members that differ without a
	// majority: a member that did not answer may be back.
	undecidedInterval = 30 * time.Second
)

// Run compares members while this one leads, until ctx ends or the member stops.
func (a *Auditor) Run(ctx context.Context) {
	select {
	case <-a.o.Ready:
	case <-ctx.Done():
		return
	}
	full := every(a.o.CorruptCheckInterval)
	defer full.Stop()
	quick := every(a.o.CompactHashCheckInterval)
	defer quick.Stop()
	yield := time.NewTicker(a.o.ElectionTimeout)
	defer yield.Stop()
	led := uint64(0) // the last term that this member led in
	for {
		compactions := false
		select {
		case <-ctx.Done():
			return
		case <-a.o.Stopping:
			return
		case <-yield.C:
			if st := a.o.Raft.Status(); st.Lead == a.o.MemberID && st.Term > led {
				led = st.Term
				if a.o.CompactHashCheckInterval > 0 {
					quick.Reset(time.Nanosecond) // a new leader compares at once
				}
			}
			// A leader with wrong data could not revoke leases: its proposals about them are
			// rejected.
			if a.namedCorrupt(a.o.MemberID) {
				a.o.HandOver(ctx)
			}
			continue
		case <-quick.C:
			compactions = true
		case <-full.C:
		}
		read := a.reading.Load()
		undecided := a.isLeader() && a.compare(ctx, compactions)
		if compactions {
			quick.Reset(a.o.CompactHashCheckInterval)
		}
		if next := a.o.CorruptCheckInterval; next > 0 && (undecided || !compactions) {
			if undecided {
				next = min(next, undecidedInterval)
			}
			full.Reset(max(next, compareRest*time.Duration(a.reading.Load()-read)))
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

// compare compares members as the leader. If compactions is set, it compares all data only if the
// hashes of compactions or the revisions differ. It reports whether members differ without a
// majority.
func (a *Auditor) compare(ctx context.Context, compactions bool) (undecided bool) {
	if compactions && !a.compactionsDiffer(ctx) && !a.revisionsDiffer(ctx) {
		return false
	}
	undecided, err := a.compareData(ctx)
	if err != nil && ctx.Err() == nil {
		a.o.Logger.Warn("comparing members failed; it is tried again", slog.Any("error", err))
	}
	return undecided
}

// compareData compares the newest state of all members, and raises and clears the alarms that
// follow. It reports whether members differ without a majority. A difference counts only if a
// second comparison finds it too, so that no member is named for data that a snapshot was about to
// replace.
func (a *Auditor) compareData(ctx context.Context) (undecided bool, err error) {
	voters, members, others := a.listMembers()
	if others == 0 {
		a.clearStale(ctx, members)
		return false, nil
	}
	ask := func() (question, verdict, error) {
		q, found, err := a.askAll(ctx, false, never)
		return q, judge(voters, members, a.withoutNamed(found)), err
	}
	began := time.Now()
	q, v, err := ask()
	if err != nil {
		return false, err
	}
	a.rounds.Add(1)
	if len(v.differ) > 0 {
		first := v
		if q, v, err = ask(); err != nil {
			return false, err
		}
		v.differ = slices.DeleteFunc(v.differ, func(f finding) bool {
			return !slices.ContainsFunc(first.differ, func(b finding) bool { return b.id == f.id })
		})
	}
	log := a.o.Logger.With(slog.Int64("revision", q.revision),
		slog.Int64("compact-revision", q.compact))
	log.Info("finished peer corruption check",
		slog.Int("number-of-peers-checked", max(v.answered-1, 0)),
		slog.Int("number-of-peers", others),
		slog.Duration("took", time.Since(began)))
	switch {
	case v.unanimous():
		a.clearStale(ctx, members)
	case len(v.differ) == 0:
	case v.decided:
		a.differences.Add(1)
		for _, f := range v.differ {
			log.Error("the data of a member differ from those of the majority: it must not serve",
				memberAttr(f.id),
				slog.String("hash", f.String()), slog.String("majority-hash", v.right.String()))
			a.o.Alarms.Propose(ctx, &kv.AlarmChange{Alarm: corrupt(f.id)}, memberAttr(f.id))
		}
		if a.namedCorrupt(0) {
			a.o.Alarms.Propose(ctx, &kv.AlarmChange{Alarm: corrupt(0), Clear: true})
		}
	default:
		a.differences.Add(1)
		log.Error("members differ and there is no majority to judge by: all go on",
			slog.String("hashes", describeFindings(v.differ)))
		if !a.namedCorrupt(0) {
			a.o.Alarms.Propose(ctx, &kv.AlarmChange{Alarm: corrupt(0)})
		}
		return true, nil
	}
	return false, nil
}

func never([]finding) bool { return false }

// withoutNamed removes the findings of members that the alarm CORRUPT names already.
func (a *Auditor) withoutNamed(found []finding) []finding {
	return slices.DeleteFunc(found, func(f finding) bool { return a.namedCorrupt(f.id) })
}

// describeFindings formats findings for the log.
func describeFindings(found []finding) string {
	var parts []string
	for _, f := range found {
		parts = append(parts, fmt.Sprintf("%x: %s", f.id, f))
	}
	return strings.Join(parts, ", ")
}

// clearStale clears the alarms about differences that no longer exist: the alarm without a member,
// and alarms of ids that no member has. The alarm of a present member may be about its disk, and
// stays.
func (a *Auditor) clearStale(ctx context.Context, members []uint64) {
	for _, alarm := range a.o.Alarms.Active() {
		if alarm.Type == kv.AlarmCorrupt && !slices.Contains(members, alarm.MemberID) {
			a.o.Alarms.Propose(ctx, &kv.AlarmChange{Alarm: alarm, Clear: true},
				memberAttr(alarm.MemberID))
		}
	}
}

// compactionsDiffer compares the hashes of compactions, without reading the data, and reports
// whether any differ. A difference is not a verdict: the data that differed may be compacted by
// now.
func (a *Auditor) compactionsDiffer(ctx context.Context) bool {
	own := a.o.Pipeline.Store().CompactionHashes()
	own = slices.DeleteFunc(own,
		func(h kv.HashResult) bool { return h.HashRevision <= a.compacted })
	_, members, others := a.listMembers()
	if len(own) == 0 || others == 0 {
		return false
	}
	equal := make([]int, len(own)) // how many members have an equal hash
	differ := false
	asked := 0
	for _, id := range members {
		if id == a.o.MemberID || a.namedCorrupt(id) {
			continue
		}
		asked++
		b, err := a.o.Calls.Call(ctx, id, calls.Hashes, []byte{askCompactions})
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
					equal[i]++
				default:
					differ = true
					a.o.Logger.Error("members have left different hashes of a compaction; "+
						"comparing all they have", memberAttr(id),
						slog.Int64("revision", o.HashRevision),
						slog.Int64("compact-revision", o.CompactRevision),
						slog.String("hash", fmt.Sprintf("%08x", o.Hash)),
						slog.String("remote-hash", fmt.Sprintf("%08x", t.Hash)))
				}
			}
		}
	}
	for i, o := range own {
		if differ || equal[i] == asked {
			// This compaction is not compared again: the comparison of all data that follows
			// decides about a difference.
			a.compacted = max(a.compacted, o.HashRevision)
		}
	}
	a.o.Logger.Info("finished compaction hash check",
		slog.Int("number-of-hashes-checked", len(own)))
	return differ
}

// revisionsDiffer reports whether a member lacks a revision that another one had at the same index.
// It does not need to read the data.
func (a *Auditor) revisionsDiffer(ctx context.Context) bool {
	voters, members, others := a.listMembers()
	if others == 0 {
		return false
	}
	_, found, err := a.askAll(ctx, true, never)
	found = a.withoutNamed(found)
	v := judge(voters, members, found)
	if err != nil || len(v.differ) == 0 {
		return false
	}
	a.o.Logger.Error("members have other revisions at the same index; comparing all they have",
		slog.String("revisions", describeFindings(found)))
	return true
}
