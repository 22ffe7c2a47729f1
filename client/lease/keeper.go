package lease

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"vigil/client"
)

// Keeper keeps leases alive. While there are leases it has one stream for all of them. It is safe
// for concurrent use.
type Keeper struct {
	c      *client.Client
	ctx    context.Context
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	wake   chan struct{} // holds an element when the schedule may have changed
	need   chan struct{} // holds an element when there are leases to keep
	mu     struct {
		sync.Mutex
		leases  map[client.LeaseID]*Lease
		queue   queue
		stream  *stream // nil while there is no stream
		trouble error   // why there is no stream, or no answer on it
		closed  bool
	}
}

// stream is a stream of keep-alives. out and sent are guarded by Keeper.mu.
type stream struct {
	calls  *client.KeepAlives
	cancel context.CancelFunc
	out    []request
	sent   []request     // without an answer yet, in the order of their answers
	wake   chan struct{} // holds an element when out is not empty
}

// request is a keep-alive of a stream, and when it was requested. A later lease may have the same
// id.
type request struct {
	l  *Lease
	at time.Time
}

// NewKeeper returns a keeper. Close must be called; it does not close the client.
func NewKeeper(c *client.Client) *Keeper {
	k := &Keeper{c: c, wake: make(chan struct{}, 1), need: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.mu.leases = map[client.LeaseID]*Lease{}
	k.tasks.Go(k.runSchedule)
	k.tasks.Go(k.keepStream)
	return k
}

// Close releases all leases: they live until their time has passed.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.mu.closed = true
	var list []*Lease
	for _, l := range k.mu.leases {
		list = append(list, l)
	}
	k.mu.Unlock()
	for _, l := range list {
		k.loseLease(l, ErrReleased)
	}
	k.cancel()
	k.tasks.Wait()
}

// Grant creates a lease and keeps it alive.
func (k *Keeper) Grant(ctx context.Context, ttl time.Duration,
	opts ...client.GrantOption) (*Lease, error) {
	if k.ctx.Err() != nil {
		return nil, ErrReleased
	}
	began := time.Now()
	g, err := k.c.Grant(ctx, ttl, opts...)
	if err != nil {
		return nil, err
	}
	return k.addLease(g.ID, g.TTL, began)
}

// Keep keeps an existing lease alive. It fails with [client.ErrLeaseNotFound] if there is none.
// Further calls for the same lease return the same Lease.
func (k *Keeper) Keep(ctx context.Context, id client.LeaseID) (*Lease, error) {
	began := time.Now()
	ttl, err := k.c.KeepAliveOnce(ctx, id)
	if err != nil {
		return nil, err
	}
	return k.addLease(id, ttl, began)
}

func (k *Keeper) addLease(id client.LeaseID, ttl time.Duration,
	confirmed time.Time) (*Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mu.closed {
		return nil, ErrReleased
	}
	l := k.mu.leases[id]
	if l == nil {
		l = &Lease{k: k, id: id, lost: make(chan struct{}), at: -1}
		k.mu.leases[id] = l
	}
	if confirmed.After(l.confirmed) {
		l.recordConfirmed(ttl, confirmed)
	}
	k.reschedule(l)
	wake(k.need)
	return l, nil
}

// recordConfirmed records that the lease lives for ttl from a moment on. Keep-alives are spread a
// little, so that leases created together are not always renewed together. The lock is held.
func (l *Lease) recordConfirmed(ttl time.Duration, at time.Time) {
	l.ttl, l.confirmed, l.asked, l.trouble = ttl, at, time.Time{}, nil
	l.due = at.Add(ttl/3 - rand.N(ttl/20+1))
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// loseLease ends a lease.
func (k *Keeper) loseLease(l *Lease, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loseLocked(l, err)
}

// loseLocked is lose with the lock held.
func (k *Keeper) loseLocked(l *Lease, err error) {
	if l.err != nil {
		return
	}
	l.err = err
	close(l.lost)
	delete(k.mu.leases, l.id)
	if l.at >= 0 {
		heap.Remove(&k.mu.queue, l.at)
	}
	if len(k.mu.leases) == 0 && k.mu.stream != nil {
		k.mu.stream.cancel() // there is no lease left
	}
}

// reschedule moves a lease to its position in the queue. The lock is held.
func (k *Keeper) reschedule(l *Lease) {
	if l.at < 0 {
		heap.Push(&k.mu.queue, l)
	} else {
		heap.Fix(&k.mu.queue, l.at)
	}
	if l.at == 0 {
		wake(k.wake)
	}
}

// runSchedule requests keep-alives when they are due and ends leases when their time has passed.
func (k *Keeper) runSchedule() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.ctx.Done():
			return
		}
		k.mu.Lock()
		now := time.Now()
		for len(k.mu.queue) > 0 && !k.mu.queue[0].dueTime().After(now) {
			k.handleDue(k.mu.queue[0], now)
		}
		wait := time.Hour
		if len(k.mu.queue) > 0 {
			wait = time.Until(k.mu.queue[0].dueTime())
		}
		k.mu.Unlock()
		timer.Reset(wait)
	}
}

// handleDue does what is due for a lease. The lock is held.
func (k *Keeper) handleDue(l *Lease, now time.Time) {
	if k.checkLease(l, now) {
		return
	}
	switch x := k.mu.stream; {
	case l.alone:
		l.asked, l.due = now, time.Time{}
		k.tasks.Go(func() { k.renewAlone(l, now) })
	case x == nil:
		// The keep-alive is requested when there is a stream again.
		l.due = time.Time{}
	case !l.asked.IsZero():
		// A third of the time has passed without an answer: another member may answer.
		k.mu.trouble = errSilent
		x.calls.Leave(errSilent)
		x.cancel()
		k.mu.stream, l.due = nil, time.Time{}
	default:
		k.requestKeepAlive(x, l, now)
	}
	k.reschedule(l)
}

// checkLease ends the lease if its time has passed, and reports whether it is lost. The lock is
// held.
func (k *Keeper) checkLease(l *Lease, now time.Time) bool {
	if l.err == nil && !l.deadline().After(now) {
		k.loseLocked(l, unconfirmed(l.why()))
	}
	return l.err != nil
}

// renewAlone keeps a lease alive with a separate call. If that succeeds, the lease returns to the
// stream.
func (k *Keeper) renewAlone(l *Lease, asked time.Time) {
	k.mu.Lock()
	ctx, cancel := context.WithDeadline(k.ctx, l.deadline())
	k.mu.Unlock()
	defer cancel()
	ttl, err := k.c.KeepAliveOnce(ctx, l.id)
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case l.err != nil:
		return
	case errors.Is(err, client.ErrLeaseNotFound):
		k.loseLocked(l, ErrGone)
		return
	case err != nil:
		l.trouble, l.asked = err, time.Time{}
		l.due = time.Now().Add(l.ttl/6 + rand.N(l.ttl/6+1))
	default:
		l.alone = false
		l.recordConfirmed(ttl, asked)
	}
	k.reschedule(l)
}

var errSilent = errors.New("the member does not answer keep-alives")

// requestKeepAlive queues a keep-alive. The lock is held.
func (k *Keeper) requestKeepAlive(x *stream, l *Lease, now time.Time) {
	l.asked = now
	l.due = now.Add(l.ttl / 3)
	x.out = append(x.out, request{l, now})
	wake(x.wake)
}

// keepStream keeps a stream open while there are leases.
func (k *Keeper) keepStream() {
	failures := 0
	for k.ctx.Err() == nil {
		k.mu.Lock()
		idle := len(k.mu.leases) == 0
		k.mu.Unlock()
		if idle {
			select {
			case <-k.need:
			case <-k.ctx.Done():
			}
			continue
		}
		answered, err := k.serveStream()
		if answered {
			failures = 0
		}
		k.mu.Lock()
		if k.mu.stream = nil; err != nil {
			k.mu.trouble = err
		}
		k.mu.Unlock()
		failures++
		select {
		case <-time.After(min(time.Second, 25*time.Millisecond<<min(failures, 6))/2 +
			rand.N(25*time.Millisecond)):
		case <-k.ctx.Done():
		}
	}
}

// serveStream opens a stream and receives until it ends.
func (k *Keeper) serveStream() (answered bool, err error) {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	calls, err := k.c.OpenKeepAlives(ctx)
	if err != nil {
		return false, err
	}
	x := &stream{calls: calls, cancel: cancel, wake: make(chan struct{}, 1)}
	k.useStream(x)
	sent := make(chan struct{})
	k.tasks.Go(func() {
		defer close(sent)
		k.sendQueued(ctx, x)
	})
	defer func() {
		cancel()
		<-sent
	}()
	for {
		a, err := calls.Recv()
		if err != nil {
			if !client.Temporary(err) {
				k.isolateFirst(x, err)
			}
			return answered, err
		}
		answered = true
		k.handleAnswer(x, a)
	}
}

// isolateFirst keeps the first lease without an answer off the streams: the server has probably
// ended the stream because of it. The others must not be affected.
func (k *Keeper) isolateFirst(x *stream, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(x.sent) == 0 {
		return
	}
	if l := x.sent[0].l; l.err == nil {
		now := time.Now()
		l.alone, l.trouble, l.asked, l.due = true, why, time.Time{}, now
		k.reschedule(l)
	}
}

// useStream requests all keep-alives on a new stream that are overdue or were requested on the last
// one.
func (k *Keeper) useStream(x *stream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.stream = x
	if len(k.mu.leases) == 0 {
		x.cancel()
	}
	now := time.Now()
	for _, l := range k.mu.leases {
		if !l.alone && (l.due.IsZero() || !l.asked.IsZero()) {
			k.requestKeepAlive(x, l, now)
			k.reschedule(l)
		}
	}
}

// sendQueued sends the queued keep-alives of a stream.
func (k *Keeper) sendQueued(ctx context.Context, x *stream) {
	for {
		k.mu.Lock()
		out := x.out
		x.out = nil
		k.mu.Unlock()
		for _, r := range out {
			k.mu.Lock()
			x.sent = append(x.sent, r)
			k.mu.Unlock()
			if x.calls.Send(r.l.id) != nil {
				return // Recv returns why
			}
		}
		select {
		case <-x.wake:
		case <-ctx.Done():
			return
		}
	}
}

// handleAnswer handles an answer. The time of the lease counts from when that keep-alive was
// requested, which is not the last one if another answer has confirmed the lease since.
func (k *Keeper) handleAnswer(x *stream, a client.KeepAlive) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := slices.IndexFunc(x.sent, func(r request) bool { return r.l.id == a.ID })
	if n < 0 {
		return // to no request
	}
	l, at := x.sent[n].l, x.sent[n].at
	x.sent = slices.Delete(x.sent, n, n+1)
	if l.err != nil || l.alone {
		return
	}
	k.mu.trouble = nil
	if a.TTL <= 0 {
		k.loseLocked(l, ErrGone)
		return
	}
	if asked := l.asked; at.After(l.confirmed) {
		if l.recordConfirmed(a.TTL, at); asked.After(at) {
			l.asked = asked // the answer to the last one is yet to come
		}
	}
	k.reschedule(l)
}

// queue orders the leases by when they are due.
type queue []*Lease

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].dueTime().Before(q[j].dueTime()) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	l := x.(*Lease)
	l.at = len(*q)
	*q = append(*q, l)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	n := len(*q) - 1
	l := (*q)[n]
	(*q)[n] = nil
	*q = (*q)[:n]
	l.at = -1
	return l
}
