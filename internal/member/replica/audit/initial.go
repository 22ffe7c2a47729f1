package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"vigil/internal/kv"
)

// initialTimeout limits how long a start waits for others to compare with.
const initialTimeout = 10 * time.Second

// ErrInconsistent reports that this member's data differ from the data of a majority.
var ErrInconsistent = errors.New("found data inconsistency with peers")

// CheckInitially compares this member with the members that are up, before it serves. Members
// answer while they start. A majority that differs from this member is an error; the leader handles
// any other difference.
func (a *Auditor) CheckInitially(ctx context.Context) error {
	voters, members, others := a.listMembers()
	if others == 0 || a.o.Calls == nil || a.o.NoInitialCorruptCheck {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, initialTimeout)
	defer cancel()
	ctx, stop := a.untilStop(ctx)
	defer stop()
	self := a.o.MemberID
	ask := func() (question, verdict, []finding, error) {
		q, found, err := a.askAll(ctx, false, func(f []finding) bool {
			return judge(voters, members, f).decided &&
				slices.ContainsFunc(f, func(f finding) bool { return f.id == self })
		})
		found = slices.DeleteFunc(found,
			func(f finding) bool { return f.id != self && a.namedCorrupt(f.id) })
		return q, judge(voters, members, found), found, err
	}
	a.o.Logger.Info("starting initial corruption check", slog.Duration("timeout", initialTimeout))
	q, v, found, err := ask()
	if err == nil && v.wrong(self) {
		q, v, found, err = ask()
	}
	switch log := a.o.Logger.With(slog.Int64("revision", q.revision),
		slog.Int64("compact-revision", q.compact)); {
	case err != nil:
		log.Warn("the initial corruption check could not be finished", slog.Any("error", err))
	case v.wrong(self):
		a.differences.Add(1)
		if !a.namedCorrupt(self) {
			a.o.Alarms.Propose(ctx, &kv.AlarmChange{Alarm: corrupt(self)})
		}
		return fmt.Errorf("member %x %w: at revision %d, compact revision %d, the hashes are %s: "+
			"remove it from the cluster, add it again and start it with an empty data directory",
			self, ErrInconsistent, q.revision, q.compact, describeFindings(found))
	case len(v.differ) > 0:
		log.Warn("members differ; the leader looks into it",
			slog.String("hashes", describeFindings(found)))
	case v.answered < 2:
		log.Info("the initial corruption check found no member to compare with")
	default:
		log.Info("initial corruption checking passed; no corruption",
			slog.Int("number-of-peers-checked", v.answered-1))
	}
	return nil
}
