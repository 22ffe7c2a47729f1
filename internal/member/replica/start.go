package replica

import (
	"context"
	"errors"
	"runtime"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/member/replica/timing"
	"vigil/internal/state/fsm"
)

// StartWrite starts a write, and done gets its outcome. It never waits: it returns false, without
// any effect, for a request that might have to wait or would be rejected. ProposeStarted must
// follow.
func (r *Replica) StartWrite(ctx context.Context, w kv.Write, done kv.Completion) (started bool) {
	if w.Txn != nil {
		if reads, _ := w.Txn.ReadOnly(); reads {
			return false
		}
	}
	req, choose := r.requestOf(w)
	if choose {
		done.Tag = chosenID{done.Tag}
	}
	return r.startRequest(ctx, req, done)
}

// chosenID is the tag of a lease whose id was chosen here: if that is in use, another one is
// chosen.
type chosenID struct{ tag any }

func (r *Replica) startRequest(ctx context.Context, req fsm.Request,
	done kv.Completion) (started bool) {
	return r.admit(ctx, &req, false) == nil &&
		r.queue.Start(ctx, req, req.Cost(), done, time.Now()) == nil
}

// quickSync is the longest usual sync of the log for which a goroutine waits that has other work.
// It is about the time that waking another goroutine takes.
const quickSync = 50 * time.Microsecond

// ProposeStarted proposes the requests that were started. alone reports that the caller has nothing
// else to do. If its request is the only one under way, the caller proposes it itself. If it is
// alone and the log is quick, it also writes it to the log, applies it and passes on its outcome:
// then no goroutine is woken.
func (r *Replica) ProposeStarted(alone bool) {
	if !r.queue.TakeUnproposed() {
		return
	}
	switch usual := r.raftLog.UsualSync(); {
	case r.queue.Pending() > 1:
		r.node.Wake()
	case !alone || usual == 0 || usual > quickSync:
		r.node.Propose()
	default:
		r.node.Propose(r.through...)
	}
}

// numAnswerers returns how many goroutines answer at once.
func numAnswerers() int { return min(max(runtime.GOMAXPROCS(0)/2, 1), 4) }

// answering is the memory of a goroutine that passes on outcomes.
type answering struct {
	calls    []*proposal.Call
	outcomes []kv.Outcome
}

// promptAnswers is the largest number of outcomes that a prompt goroutine passes on.
const promptAnswers = 64

// answerCalls is the work of the answer stage: it passes on the outcomes of requests that were
// started. The outcomes of one commit come together, so that their receiver writes once to each of
// its connections.
func (r *Replica) answerCalls(prompt bool) (left bool) {
	a, _ := r.answering.Get().(*answering)
	if a == nil {
		a = &answering{}
	}
	defer r.answering.Put(a)
	if prompt && r.queue.Results() > promptAnswers {
		return true
	}
	a.calls = r.queue.TakeResults(a.calls[:0])
	now, first := time.Now(), 0
	for i, c := range a.calls {
		if to := c.Done.To; to != a.calls[first].Done.To {
			a.passOutcomes(a.calls[first].Done.To)
			first = i
		}
		if o, ok := r.outcomeOf(c, now); ok {
			a.outcomes = append(a.outcomes, o)
		}
	}
	if len(a.calls) > 0 {
		a.passOutcomes(a.calls[first].Done.To)
	}
	r.queue.Recycle(a.calls...)
	if cap(a.calls) > mostKept {
		*a = answering{} // a member without a leader fails all requests at once
	}
	return false
}

// mostKept is the largest list of outcomes whose memory is kept.
const mostKept = 4096

// passOutcomes passes the outcomes on.
func (a *answering) passOutcomes(to kv.Receiver) {
	if len(a.outcomes) > 0 {
		to.Receive(a.outcomes)
		clear(a.outcomes)
		a.outcomes = a.outcomes[:0]
	}
}

// outcomeOf returns the outcome of a request, unless the request is started again.
func (r *Replica) outcomeOf(c *proposal.Call, now time.Time) (o kv.Outcome, ok bool) {
	if c.Read != nil {
		return r.finishGet(c), true
	}
	r.countWrite(context.Background(), c, now)
	o = kv.Outcome{Tag: c.Done.Tag, Err: c.Result.Err}
	setOutcome(&o, c.Result)
	if chosen, is := c.Done.Tag.(chosenID); is {
		o.Tag = chosen.tag
		if errors.Is(o.Err, kv.ErrLeaseExists) {
			c.Request.LeaseGrant.ID = newLeaseID()
			if r.startRequest(context.Background(), c.Request, c.Done) {
				r.ProposeStarted(false)
				return o, false
			}
		}
	}
	return o, true
}

// GetNow reads one key at the newest revision into res, without waiting. It returns false unless
// the value is small and in memory, or in the cache of the file system.
func (r *Replica) GetNow(ctx context.Context, req *kv.RangeRequest, res *kv.GetResult,
	start time.Time) (ok bool) {
	return r.getNow(ctx, req, res, start, peek)
}

// peek reads one key from the present store.
func peek(r *Replica, req *kv.RangeRequest, res *kv.GetResult) (ok bool) {
	return r.current.Load().Store.Peek(req, res)
}

// getNow is GetNow with the function that reads.
func (r *Replica) getNow(ctx context.Context, req *kv.RangeRequest, res *kv.GetResult,
	start time.Time, read func(*Replica, *kv.RangeRequest, *kv.GetResult) bool) (ok bool) {
	if len(req.End) > 0 || r.Access.AuthEnabled() || r.trust.Check() != nil {
		return false
	}
	select {
	case <-r.stopping:
		return false
	default:
	}
	if !req.Serializable {
		if index, ok := r.node.TryReadIndex(); !ok || r.applied.Load() < index {
			return false
		}
	}
	// the data may be newer than the first look at auth
	if !read(r, req, res) || r.Access.AuthEnabled() {
		return false
	}
	took := time.Since(start)
	r.timings.CountScan(took, nil)
	r.timings.CountRange(ctx, req, &res.RangeResult, timing.Read{Start: start, Took: took}, nil)
	return true
}

// StartGet starts a linearizable read of one key at the newest revision, for which this member has
// to ask others. The outcome may be that the read is declined after all.
func (r *Replica) StartGet(req *kv.RangeRequest, done kv.Completion) (started bool) {
	if req.Serializable || len(req.End) > 0 || req.Revision > 0 || req.CountOnly || req.KeysOnly ||
		req.Filters() ||
		r.Access.AuthEnabled() || r.trust.Check() != nil || r.node.Status().Lead == 0 {
		return false
	}
	if index, alone := r.node.TryReadIndex(); alone && r.applied.Load() >= index {
		return false // GetNow has declined it for another reason
	}
	return r.gets.Add(req, done, time.Now())
}

// readyForGets waits until gets may read the store. The first of them arrived at since.
func (r *Replica) readyForGets(ctx context.Context, since time.Time) error {
	limited, cancel := context.WithDeadline(ctx, since.Add(r.cfg.RequestTimeout))
	defer cancel()
	_, err := r.AwaitReadable(limited, false)
	if ctx.Err() != nil {
		return kv.ErrStopped
	}
	return r.contacts.WaitError(err, since)
}

// finishGet returns the outcome of a get that is ready. It declines a get that may wait for the
// disk, or for which permissions now matter.
func (r *Replica) finishGet(p *proposal.Call) kv.Outcome {
	out := kv.Outcome{Tag: p.Done.Tag, Err: p.Result.Err}
	read := timing.Read{Start: p.At, Ready: time.Since(p.At)}
	if out.Err == nil {
		res := &kv.GetResult{}
		if !peek(r, p.Read, res) || r.Access.AuthEnabled() || r.trust.Check() != nil {
			return kv.Outcome{Tag: p.Done.Tag, Declined: true}
		}
		out.Range = &res.RangeResult
	}
	read.Took = time.Since(p.At)
	r.timings.CountScan(read.Took-read.Ready, out.Err)
	r.timings.CountRange(context.Background(), p.Read, out.Range, read, out.Err)
	return out
}
