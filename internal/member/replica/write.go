package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/replica/access"
	"vigil/internal/member/replica/handle"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/member/replica/space"
	"vigil/internal/member/replica/timing"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
)

// Do carries out a write of a client, and chooses the id of a lease if that is 0. Errors: from mvcc
// and lease for the request. After kv.ErrRequestTooLarge, kv.ErrTooManyRequests, kv.ErrNoSpace,
// kv.ErrLeaderChanged and errors of auth, a write had no effect. After kv.ErrTimeout and its
// variants, kv.ErrStopped and errors of ctx it may still take effect. A request that could not be
// proposed in time because there is no leader ends with context.DeadlineExceeded.
//
// A transaction that only reads does not go through the log. It is linearizable unless all its
// ranges are serializable; errors: as Range.
func (r *Replica) Do(ctx context.Context, w kv.Write) (o kv.Outcome) {
	if w.Txn != nil {
		if reads, serializable := w.Txn.ReadOnly(); reads {
			o.Txn, o.Err = r.readTxn(ctx, w.Txn, serializable)
			return o
		}
	}
	req, choose := r.requestOf(w)
	for {
		var res fsm.Result
		if res, o.Err = r.Propose(ctx, &req); !choose || !errors.Is(o.Err, kv.ErrLeaseExists) {
			setOutcome(&o, res)
			return o
		}
		req.LeaseGrant.ID = newLeaseID()
	}
}

// requestOf returns the request of a write. chosen reports that the id of its lease was chosen
// here: if that is in use, another one is chosen.
func (r *Replica) requestOf(w kv.Write) (req fsm.Request, chosen bool) {
	if w.Grant == nil {
		return fsm.Request{Put: w.Put, DeleteRange: w.DeleteRange, Txn: w.Txn}, false
	}
	grant := *w.Grant
	grant.TTL = max(grant.TTL, r.lessor.MinTTL())
	if chosen = grant.ID == 0; chosen {
		grant.ID = newLeaseID()
	}
	return fsm.Request{LeaseGrant: &grant}, chosen
}

// newLeaseID returns a random id.
func newLeaseID() int64 {
	for {
		if id := rand.Int64(); id != 0 {
			return id
		}
	}
}

// setOutcome sets the result of an outcome.
func setOutcome(o *kv.Outcome, res fsm.Result) {
	o.Put, o.DeleteRange, o.Txn, o.Lease = res.Put, res.DeleteRange, res.Txn, res.Lease
}

// Put writes a key. Errors: from mvcc.Writer.Put, and as Do.
func (r *Replica) Put(ctx context.Context, req *kv.PutRequest) (*kv.PutResult, error) {
	o := r.Do(ctx, kv.Write{Put: req})
	return o.Put, o.Err
}

// DeleteRange deletes the keys of a range. Errors: as Do.
func (r *Replica) DeleteRange(ctx context.Context,
	req *kv.DeleteRangeRequest) (*kv.DeleteRangeResult, error) {
	o := r.Do(ctx, kv.Write{DeleteRange: req})
	return o.DeleteRange, o.Err
}

// Txn runs a transaction. Errors: as Do.
func (r *Replica) Txn(ctx context.Context, req *kv.TxnRequest) (*kv.TxnResult, error) {
	o := r.Do(ctx, kv.Write{Txn: req})
	return o.Txn, o.Err
}

// readTxn runs a transaction that only reads.
func (r *Replica) readTxn(ctx context.Context, req *kv.TxnRequest,
	serializable bool) (*kv.TxnResult, error) {
	err := r.trust.Check()
	if err != nil {
		return nil, err
	}
	read := timing.Read{Start: time.Now()}
	var res *kv.TxnResult
	read.Ready, err = r.AwaitReadable(ctx, serializable)
	if err == nil {
		res, err = access.Read(ctx, r.Access,
			func(s *auth.State, id auth.Identity) error {
				return s.CheckTxn(id, req,
					r.LeaseState().Each)
			},
			func() (*kv.TxnResult, error) {
				return handle.Read(ctx, r.current,
					func(h *handle.Handle) (*kv.TxnResult,
						error) {
						return h.Store.ReadTxn(ctx, req)
					})
			})
	}
	read.Took = time.Since(read.Start)
	r.timings.CountTxn(ctx, req, res, read, err)
	return res, err
}

// Compact drops records that only revisions below the named one can see. Errors: from
// mvcc.Writer.Compact, and as Do.
func (r *Replica) Compact(ctx context.Context, req *kv.CompactRequest) (*kv.CompactResult, error) {
	res, err := r.Propose(ctx, &fsm.Request{Compact: req})
	if err == nil && req.Physical {
		_, err = handle.Read(ctx, r.current,
			func(h *handle.Handle) (struct{}, error) {
				return struct{}{},
					h.Store.WaitReclaimed(ctx, req.Revision)
			})
	}
	return res.Compact, err
}

// Reclaim asks this member for the disk space of all compacted records, and returns when that
// counts as free: the space itself is released in the background. Errors: kv.ErrStopped, and from
// ctx.
func (r *Replica) Reclaim(ctx context.Context) error {
	_, err := handle.Read(ctx, r.current, func(h *handle.Handle) (struct{}, error) {
		h.Store.Reclaim()
		return struct{}{}, h.Store.WaitTrimmed(ctx, h.Store.CompactRevision())
	})
	return err
}

// setAttributes publishes the name and the client URLs of the member to the cluster.
func (r *Replica) setAttributes(ctx context.Context) error {
	_, err := r.Propose(ctx, &fsm.Request{Attributes: &cluster.Member{
		ID: r.memberID, Name: r.cfg.Name, ClientURLs: r.cfg.ClientURLs, Level: fsm.Level}})
	return err
}

// Propose proposes a request and waits for its result. Errors: kv.ErrNotCapable if not every member
// knows the request, and as Do.
func (r *Replica) Propose(ctx context.Context, req *fsm.Request) (fsm.Result, error) {
	if level := r.roster.State().Level(); req.Level() > level {
		return fsm.Result{},
			fmt.Errorf("%w: the request needs level %d and a member of the cluster knows level "+
				"%d: "+
				"run the newer version at every member", kv.ErrNotCapable, req.Level(), level)
	}
	if err := r.admit(ctx, req, true); err != nil {
		return fsm.Result{}, err
	}
	begun := time.Now()
	c, err := r.queue.StartWaited(ctx, *req, req.Cost(), begun)
	if err != nil {
		switch err {
		case space.ErrQuota:
			r.monitor.AwaitAlarm(ctx)
			err = kv.ErrNoSpace
		case space.ErrUnmeasured:
			err = r.TimeoutCause(begun)
		}
		return fsm.Result{}, err
	}
	if r.queue.TakeUnproposed() {
		r.node.Wake()
	}
	begun, at := c.Begun(), c.At
	if !c.Wait(ctx) {
		err := r.contacts.WaitError(ctx.Err(), begun)
		r.timings.CountWrite(ctx, req, time.Since(at), err)
		return fsm.Result{}, err
	}
	r.countWrite(ctx, c, time.Now())
	res := c.Result
	r.queue.Recycle(c)
	return res, res.Err
}

// countWrite counts and measures a write that has its result.
func (r *Replica) countWrite(ctx context.Context, c *proposal.Call, now time.Time) {
	if r.timings.CountWrite(ctx, &c.Request, now.Sub(c.At), c.Result.Err) {
		r.timings.SetSteps(ctx, &c.Request, c.At, c.Marks.Steps(c.At, now))
	}
}

// errMustWait is the error of admit for a request that might have to wait.
var errMustWait = errors.New("the request might have to wait")

// admit rejects a request early, before it is proposed, if the request would only make things
// worse. The state machine has no part in that. If auth is enabled, admit sets the identity of the
// request. If the request might have to wait and mayWait is not set, its error is errMustWait.
func (r *Replica) admit(ctx context.Context, req *fsm.Request, mayWait bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if committed, applied := r.node.Status().Committed,
		r.applied.Load(); committed > applied+r.cfg.MaxApplyLag {
		return kv.ErrTooManyRequests
	}
	if r.alarmRejects(req) {
		if !mayWait {
			return errMustWait
		}
		// Apply would reject it, and the log would grow by it. A member that lags may know an alarm
		// that is cleared.
		if err := r.Linearize(ctx); err != nil {
			return err
		}
		if r.alarmRejects(req) {
			return kv.ErrNoSpace
		}
	}
	err := r.space.Shortage()
	if err != nil && !req.Grows() {
		// Requests that give space back use the space that is kept for them.
		err = r.space.ShortageToFree()
	}
	if err != nil || !r.Access.AuthEnabled() || !req.NeedsIdentity() {
		return err
	}
	if !mayWait {
		return errMustWait
	}
	req.Identity, err = r.Access.Proposer(ctx, req)
	return err
}

// alarmRejects reports whether the alarm NOSPACE, as this member has applied it, rejects a request.
// Other alarms reject more, with other errors, at apply.
func (r *Replica) alarmRejects(req *fsm.Request) bool {
	list := r.Alarms.Active()
	return len(list) > 0 && req.Grows() &&
		!slices.ContainsFunc(list, func(a kv.Alarm) bool { return a.Type != kv.AlarmNoSpace })
}

// Step takes raft messages from other members; see raftnode.Node.Step.
func (r *Replica) Step(msgs ...*raftpb.Message) { r.node.Step(msgs...) }

// ReportUnreachable reports that messages to a member were lost.
func (r *Replica) ReportUnreachable(id uint64) { r.node.ReportUnreachable(id) }

// ReportAbsent reports that the process of a member has ended, or is there again; see
// raftnode.Node.ReportAbsent.
func (r *Replica) ReportAbsent(id uint64, absent bool) { r.node.ReportAbsent(id, absent) }
