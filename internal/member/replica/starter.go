package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/replica/gets"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/member/replica/timing"
	"vigil/internal/state/auth"
)

// Starter serves requests on goroutines that must not wait. Its methods decline what might wait, and what is rejected: then
// nothing was done, and the method of Replica or Leases with the same purpose is called.
type Starter struct {
	r     *Replica
	gets  *gets.Gets
	lists sync.Pool // of *[]*proposal.Call
}

func newStarter(r *Replica) *Starter {
	s := &Starter{r: r}
	s.gets = gets.New(gets.Options{Ready: s.ready, Queue: r.queue})
	return s
}

// Renew renews a lease, and returns its TTL in seconds.
func (s *Starter) Renew(id int64) (ttl int64, ok bool) {
	if s.r.Access.AuthEnabled() {
		return 0, false
	}
	return s.r.lessor.RenewNow(auth.Identity{}, id)
}

// chosenID is the tag of a lease whose id was chosen here: if that is in use, another one is chosen.
type chosenID struct{ tag any }

// StartWrite starts a write; see Replica.StartWrite.
func (s *Starter) StartWrite(ctx context.Context, w kv.Write, tag any) (started bool) {
	return s.r.StartWrite(ctx, w, tag)
}

// Results waits for results of requests that were started, and appends them to dst: all that there are, so that those of one
// commit come together. It returns when there are some, or stop is closed. It may be called concurrently.
func (s *Starter) Results(dst []kv.Outcome, stop <-chan struct{}) []kv.Outcome {
	r := s.r
	for n := len(dst); ; {
		list := r.queue.Results(nil, stop)
		if len(list) == 0 {
			return dst
		}
		if dst = s.finishAll(dst, list); len(dst) > n {
			return dst
		}
	}
}

// Apply is Results for a few requests that are under way alone: it writes them to the log and applies them on the goroutine of the caller.
// That saves waking a goroutine for each step.
func (s *Starter) Apply(dst []kv.Outcome, stop <-chan struct{}) []kv.Outcome {
	for n := len(dst); ; {
		run := s.r.node.Single.Committed(stop)
		if run == nil {
			return dst
		}
		if dst = s.apply(dst, run); len(dst) > n {
			return dst
		}
	}
}

// quickSync is the time that a sync of the log usually takes at most while goroutines wait for it that must not wait for anything else: it
// takes them about as long to wake another one.
const quickSync = 50 * time.Microsecond

// Unproposed reports whether Propose must be called now. It is called after each request that was started.
func (s *Starter) Unproposed() bool { return s.r.queue.TakeUnproposed() }

// Propose lets requests be proposed that were started. alone reports that the caller has nothing else to do. Then a single request is
// written to the log and applied on its goroutine, if the log is quick, and its result is appended to dst.
func (s *Starter) Propose(dst []kv.Outcome, alone bool) []kv.Outcome {
	r := s.r
	switch usual := r.raftLog.UsualSync(); {
	case r.queue.Pending() > 1:
		r.node.Wake()
	case !alone || usual == 0 || usual > quickSync:
		r.node.Single.Propose()
	default:
		if run := r.node.Single.Commit(); len(run) > 0 {
			dst = s.apply(dst, run)
		}
	}
	return dst
}

// apply applies what the node has lent, and appends the results.
func (s *Starter) apply(dst []kv.Outcome, run []*raftpb.Message) []kv.Outcome {
	list, _ := s.lists.Get().(*[]*proposal.Call)
	if list == nil {
		list = new([]*proposal.Call)
	}
	*list = s.r.applier.applySmall(run, (*list)[:0])
	dst = s.finishAll(dst, *list)
	s.lists.Put(list)
	return dst
}

// finishAll appends results.
func (s *Starter) finishAll(dst []kv.Outcome, list []*proposal.Call) []kv.Outcome {
	now := time.Now()
	for _, p := range list {
		dst = s.finish(dst, p, now)
	}
	s.r.queue.Recycle(list...)
	return dst
}

// finish appends the result of a request, unless that is repeated.
func (s *Starter) finish(dst []kv.Outcome, p *proposal.Call, now time.Time) []kv.Outcome {
	if p.Read != nil {
		return append(dst, s.finishGet(p))
	}
	s.r.countWrite(context.Background(), p, now)
	out := kv.Outcome{Tag: p.Tag, Err: p.Result.Err}
	setOutcome(&out, p.Result)
	if chosen, ok := p.Tag.(chosenID); ok {
		out.Tag = chosen.tag
		if errors.Is(out.Err, kv.ErrLeaseExists) {
			p.Request.LeaseGrant.ID = newLeaseID()
			if s.r.startRequest(context.Background(), p.Request, p.Tag) {
				if s.Unproposed() {
					s.r.node.Wake()
				}
				return dst
			}
		}
	}
	return append(dst, out)
}

// Get reads one key at the newest revision into res, if its value is small and in memory, or in the cache of the file system.
func (s *Starter) Get(ctx context.Context, req *kv.RangeRequest, res *kv.GetResult, start time.Time) (ok bool) {
	return s.get(ctx, req, res, start, peek)
}

// peek reads one key from the present store.
func peek(r *Replica, req *kv.RangeRequest, res *kv.GetResult) (ok bool) {
	return r.current.Load().Store.Peek(req, res)
}

// get is Get with the function that reads.
func (s *Starter) get(ctx context.Context, req *kv.RangeRequest, res *kv.GetResult, start time.Time, read func(*Replica, *kv.RangeRequest, *kv.GetResult) bool) (ok bool) {
	r := s.r
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
	if !read(r, req, res) || r.Access.AuthEnabled() { // the data may be newer than the first look at auth
		return false
	}
	took := time.Since(start)
	r.timings.CountScan(took, nil)
	r.timings.CountRange(ctx, req, &res.RangeResult, timing.Read{Start: start, Took: took}, nil)
	return true
}

// StartGet starts a linearizable read of one key at the newest revision, where this member has to ask others first. Results returns its
// result, with the tag, or that it is declined after all.
func (s *Starter) StartGet(req *kv.RangeRequest, tag any) (started bool) {
	r := s.r
	if req.Serializable || len(req.End) > 0 || req.Revision > 0 || req.CountOnly || req.KeysOnly || req.Filters() ||
		r.Access.AuthEnabled() || r.trust.Check() != nil || r.node.Status().Lead == 0 {
		return false
	}
	if index, alone := r.node.TryReadIndex(); alone && r.applied.Load() >= index {
		return false // Get has declined it for another reason
	}
	return s.gets.Add(req, tag, time.Now())
}

// ready waits until the store may be read by gets the first of which arrived at since.
func (s *Starter) ready(ctx context.Context, since time.Time) error {
	limited, cancel := context.WithDeadline(ctx, since.Add(s.r.cfg.RequestTimeout))
	defer cancel()
	_, err := s.r.AwaitReadable(limited, false)
	if ctx.Err() != nil {
		return kv.ErrStopped
	}
	return s.r.contacts.WaitError(err, since)
}

// finishGet returns the result of a get that is ready. One that may wait for the disk, and one for which permissions matter now, is
// declined.
func (s *Starter) finishGet(p *proposal.Call) kv.Outcome {
	r, out := s.r, kv.Outcome{Tag: p.Tag, Err: p.Result.Err}
	read := timing.Read{Start: p.At, Ready: time.Since(p.At)}
	if out.Err == nil {
		res := &kv.GetResult{}
		if !peek(r, p.Read, res) || r.Access.AuthEnabled() || r.trust.Check() != nil {
			return kv.Outcome{Tag: p.Tag, Declined: true}
		}
		out.Range = &res.RangeResult
	}
	read.Took = time.Since(p.At)
	r.timings.CountScan(read.Took-read.Ready, out.Err)
	r.timings.CountRange(context.Background(), p.Read, out.Range, read, out.Err)
	return out
}
