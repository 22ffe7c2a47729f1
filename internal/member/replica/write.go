package replica

import (
	"context"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/replica/access"
	"vigil/internal/member/replica/timing"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
)

// Put writes a key. Errors: those of mvcc.Writer.Put, and of any write: kv.ErrRequestTooLarge,
// kv.ErrTooManyRequests, kv.ErrNoSpace, kv.ErrLeaderChanged and those of auth had no effect; kv.ErrTimeout and its
// variants, kv.ErrStopped and those of ctx may still take effect. A request that could not be proposed in
// time because there is no leader ends with context.DeadlineExceeded.
func (r *Replica) Put(ctx context.Context, req *kv.PutRequest) (*kv.PutResult, error) {
	res, err := r.Propose(ctx, &fsm.Request{Put: req})
	return res.Put, err
}

// DeleteRange deletes the keys of a range. Errors: as Put.
func (r *Replica) DeleteRange(ctx context.Context, req *kv.DeleteRangeRequest) (*kv.DeleteRangeResult, error) {
	res, err := r.Propose(ctx, &fsm.Request{DeleteRange: req})
	return res.DeleteRange, err
}

// Txn runs a transaction. One that only reads does not go through the log; it is linearizable
// unless all its ranges are serializable. Errors: those of mvcc, and as Put or Range.
func (r *Replica) Txn(ctx context.Context, req *kv.TxnRequest) (*kv.TxnResult, error) {
	reads, serializable := req.ReadOnly()
	if !reads {
		res, err := r.Propose(ctx, &fsm.Request{Txn: req})
		return res.Txn, err
	}
	err := r.trust.Check()
	if err != nil {
		return nil, err
	}
	read := timing.Read{Start: time.Now()}
	var res *kv.TxnResult
	read.Ready, err = r.readable(ctx, serializable)
	if err == nil {
		res, err = access.Read(ctx, r.Access, func(s *auth.State, id auth.Identity) error { return s.CheckTxn(id, req, r.handle().leases.Each) },
			func() (*kv.TxnResult, error) {
				return onStore(ctx, r, func(h *handle) (*kv.TxnResult, error) { return h.store.ReadTxn(ctx, req) })
			})
	}
	read.Took = time.Since(read.Start)
	r.timings.CountTxn(ctx, req, res, read, err)
	return res, err
}

// Compact drops what only revisions below the one named can see. Errors: those of
// mvcc.Writer.Compact, and as Put.
func (r *Replica) Compact(ctx context.Context, req *kv.CompactRequest) (*kv.CompactResult, error) {
	res, err := r.Propose(ctx, &fsm.Request{Compact: req})
	if err == nil && req.Physical {
		_, err = onStore(ctx, r, func(h *handle) (struct{}, error) { return struct{}{}, h.store.WaitReclaimed(ctx, req.Revision) })
	}
	return res.Compact, err
}

// Reclaim asks for the disk space of everything that compaction has made needless, and returns when that counts as
// free: the space itself comes back in the background. It is this member's alone. Errors: those of ctx, kv.ErrStopped.
func (r *Replica) Reclaim(ctx context.Context) error {
	_, err := onStore(ctx, r, func(h *handle) (struct{}, error) {
		h.store.Reclaim()
		return struct{}{}, h.store.WaitTrimmed(ctx, h.store.CompactRevision())
	})
	return err
}

// setAttributes publishes the name and the client URLs of the member to the cluster.
func (r *Replica) setAttributes(ctx context.Context) error {
	_, err := r.Propose(ctx, &fsm.Request{Attributes: &cluster.Member{
		ID: r.memberID, Name: r.cfg.Name, ClientURLs: r.cfg.ClientURLs, Level: fsm.Level}})
	return err
}

// Propose proposes a request and waits for its result. Errors: as Put.
func (r *Replica) Propose(ctx context.Context, req *fsm.Request) (fsm.Result, error) {
	if err := r.admit(ctx, req); err != nil {
		return fsm.Result{}, err
	}
	if r.Access.AuthEnabled() && req.NeedsIdentity() {
		var err error
		if req.Identity, err = r.Access.Proposer(ctx, req); err != nil {
			return fsm.Result{}, err
		}
	}
	start := time.Now()
	w, wake, err := r.queue.Add(ctx, req, req.Cost())
	if err != nil {
		if err == errQuota {
			r.space.awaitAlarm(ctx)
			err = kv.ErrNoSpace
		}
		return fsm.Result{}, err
	}
	if wake {
		r.node.Wake()
	}
	res, marks, ok := r.queue.Wait(ctx, w)
	if !ok {
		res.Err = r.ctxError(ctx.Err(), marks.Begun)
	}
	took := time.Since(start)
	if r.timings.CountWrite(ctx, req, took, res.Err) {
		r.timings.SetSteps(ctx, req, start, marks.Steps(start, start.Add(took)))
	}
	return res, res.Err
}

// admit refuses early what would only make things worse. Nothing here is a matter of the state
// machine: what is refused is not proposed.
func (r *Replica) admit(ctx context.Context, req *fsm.Request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if committed, applied := r.node.Status().Committed, r.applied.Load(); committed > applied+r.cfg.MaxApplyLag {
		return kv.ErrTooManyRequests
	}
	if r.alarmRejects(req) {
		// Apply would reject it, and the log would grow by it. A member that lags may know an alarm that is cleared.
		if err := r.Linearize(ctx); err != nil {
			return err
		}
		if r.alarmRejects(req) {
			return kv.ErrNoSpace
		}
	}
	short := r.space.Shortage()
	if short == nil || req.Grows() {
		return short
	}
	// What gives space back goes on, out of what is kept for it.
	return r.space.roomToFree()
}

// alarmRejects says whether the NOSPACE alarm, as this member has applied it, rejects a request. Other alarms reject more,
// with errors of their own, at apply.
func (r *Replica) alarmRejects(req *fsm.Request) bool {
	list := r.Alarms.Active()
	return len(list) > 0 && req.Grows() && !slices.ContainsFunc(list, func(a kv.Alarm) bool { return a.Type != kv.AlarmNoSpace })
}

// Step takes raft messages from other members; see raftnode.Node.Step.
func (r *Replica) Step(msgs ...*raftpb.Message) { r.node.Step(msgs...) }

// ReportUnreachable says that messages to a member were lost.
func (r *Replica) ReportUnreachable(id uint64) { r.node.ReportUnreachable(id) }

// ReportAbsent says that the process of a member has ended, or that it is there again; see raftnode.Node.ReportAbsent.
func (r *Replica) ReportAbsent(id uint64, absent bool) { r.node.ReportAbsent(id, absent) }
