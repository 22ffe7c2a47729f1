package lease

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"vigil/client"
)

// Keeper keeps leases alive. It has one stream for all of them while there is any. It is safe for concurrent use.
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
		line    *line // nil while there is no stream
		trouble error // why there is none, or why nothing is answered on it
		closed  bool
	}
}

// line is a stream. out and sent are guarded by Keeper.mu.
type line struct {
	stream *client.KeepAlives
	cancel context.CancelFunc
	out    []client.LeaseID
	sent   []client.LeaseID // not answered yet, in the order of their answers
	wake   chan struct{}    // holds an element when out is not empty
}

// NewKeeper returns a keeper, which lives until Close is called; it does not close the client.
func NewKeeper(c *client.Client) *Keeper {
	k := &Keeper{c: c, wake: make(chan struct{}, 1), need: make(chan struct{}, 1)}
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.mu.leases = map[client.LeaseID]*Lease{}
	k.tasks.Go(k.schedule)
	k.tasks.Go(k.connect)
	return k
}

// Close releases all leases: they live on until their time has passed.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.mu.closed = true
	var list []*Lease
	for _, l := range k.mu.leases {
		list = append(list, l)
	}
	k.mu.Unlock()
	for _, l := range list {
		k.lose(l, ErrReleased)
	}
	k.cancel()
	k.tasks.Wait()
}

// Grant makes a lease and keeps it alive.
func (k *Keeper) Grant(ctx context.Context, ttl time.Duration, opts ...client.GrantOption) (*Lease, error) {
	if k.ctx.Err() != nil {
		return nil, ErrReleased
	}
	began := time.Now()
	g, err := k.c.Grant(ctx, ttl, opts...)
	if err != nil {
		return nil, err
	}
	return k.keep(g.ID, g.TTL, began)
}

// Keep keeps alive a lease that there is: client.ErrLeaseNotFound if there is none. The same lease is
// kept once, however often it is asked for.
func (k *Keeper) Keep(ctx context.Context, id client.LeaseID) (*Lease, error) {
	began := time.Now()
	ttl, err := k.c.KeepAliveOnce(ctx, id)
	if err != nil {
		return nil, err
	}
	return k.keep(id, ttl, began)
}

func (k *Keeper) keep(id client.LeaseID, ttl time.Duration, confirmed time.Time) (*Lease, error) {
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
		l.confirm(ttl, confirmed)
	}
	k.reschedule(l)
	signal(k.need)
	return l, nil
}

// confirm notes that the lease lives for ttl from a moment on; the lock is held. Keep-alives are spread a little, so
// that leases which were made together are not kept alive together for ever.
func (l *Lease) confirm(ttl time.Duration, at time.Time) {
	l.ttl, l.confirmed, l.asked, l.trouble = ttl, at, time.Time{}, nil
	l.due = at.Add(ttl/3 - rand.N(ttl/20+1))
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// lose ends a lease.
func (k *Keeper) lose(l *Lease, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.drop(l, err)
}

// drop is lose with the lock held.
func (k *Keeper) drop(l *Lease, err error) {
	if l.err != nil {
		return
	}
	l.err = err
	close(l.lost)
	delete(k.mu.leases, l.id)
	if l.at >= 0 {
		heap.Remove(&k.mu.queue, l.at)
	}
	if len(k.mu.leases) == 0 && k.mu.line != nil {
		k.mu.line.cancel() // nothing is left to keep
	}
}

// reschedule puts a lease where it belongs in the queue; the lock is held.
func (k *Keeper) reschedule(l *Lease) {
	if l.at < 0 {
		heap.Push(&k.mu.queue, l)
	} else {
		heap.Fix(&k.mu.queue, l.at)
	}
	if l.at == 0 {
		signal(k.wake)
	}
}

// schedule asks for keep-alives when they are due and gives leases up when their time has passed.
func (k *Keeper) schedule() {
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
		for len(k.mu.queue) > 0 && !k.mu.queue[0].wake().After(now) {
			k.turn(k.mu.queue[0], now)
		}
		wait := time.Hour
		if len(k.mu.queue) > 0 {
			wait = time.Until(k.mu.queue[0].wake())
		}
		k.mu.Unlock()
		timer.Reset(wait)
	}
}

// turn does what is due about a lease; the lock is held.
func (k *Keeper) turn(l *Lease, now time.Time) {
	if k.check(l, now) {
		return
	}
	switch x := k.mu.line; {
	case l.alone:
		l.asked, l.due = now, time.Time{}
		k.tasks.Go(func() { k.renew(l, now) })
	case x == nil:
		// It is asked for when there is a stream again.
		l.due = time.Time{}
	case !l.asked.IsZero():
		// A third of the time has passed without an answer: another member may be better.
		k.mu.trouble = errSilent
		x.stream.Leave(errSilent)
		x.cancel()
		k.mu.line, l.due = nil, time.Time{}
	default:
		k.ask(x, l, now)
	}
	k.reschedule(l)
}

// check gives the lease up if its time has passed, and reports whether it is lost; the lock is held.
func (k *Keeper) check(l *Lease, now time.Time) bool {
	if l.err == nil && !l.deadline().After(now) {
		k.drop(l, unconfirmed(l.why()))
	}
	return l.err != nil
}

// renew keeps a lease alive by a call of its own. If that works it returns to the stream.
func (k *Keeper) renew(l *Lease, asked time.Time) {
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
		k.drop(l, ErrGone)
		return
	case err != nil:
		l.trouble, l.asked = err, time.Time{}
		l.due = time.Now().Add(l.ttl/6 + rand.N(l.ttl/6+1))
	default:
		l.alone = false
		l.confirm(ttl, asked)
	}
	k.reschedule(l)
}

var errSilent = errors.New("the member does not answer keep-alives")

// ask sends a keep-alive; the lock is held.
func (k *Keeper) ask(x *line, l *Lease, now time.Time) {
	l.asked = now
	l.due = now.Add(l.ttl / 3)
	x.out = append(x.out, l.id)
	signal(x.wake)
}

// connect keeps a stream open while there are leases.
func (k *Keeper) connect() {
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
		answered, err := k.serve()
		if answered {
			failures = 0
		}
		k.mu.Lock()
		if k.mu.line = nil; err != nil {
			k.mu.trouble = err
		}
		k.mu.Unlock()
		failures++
		select {
		case <-time.After(min(time.Second, 25*time.Millisecond<<min(failures, 6))/2 + rand.N(25*time.Millisecond)):
		case <-k.ctx.Done():
		}
	}
}

// serve opens a stream and receives until it ends.
func (k *Keeper) serve() (answered bool, err error) {
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	stream, err := k.c.OpenKeepAlives(ctx)
	if err != nil {
		return false, err
	}
	x := &line{stream: stream, cancel: cancel, wake: make(chan struct{}, 1)}
	k.begin(x)
	sent := make(chan struct{})
	k.tasks.Go(func() {
		defer close(sent)
		k.send(ctx, x)
	})
	defer func() {
		cancel()
		<-sent
	}()
	for {
		a, err := stream.Recv()
		if err != nil {
			if !client.Temporary(err) {
				k.isolate(x, err)
			}
			return answered, err
		}
		answered = true
		k.answered(x, a)
	}
}

// isolate takes the lease off the streams that the server has ended one for: the first that was not answered. The
// others must not suffer for it.
func (k *Keeper) isolate(x *line, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(x.sent) == 0 {
		return
	}
	if l := k.mu.leases[x.sent[0]]; l != nil {
		now := time.Now()
		l.alone, l.trouble, l.asked, l.due = true, why, time.Time{}, now
		k.reschedule(l)
	}
}

// begin takes a new stream into use: whatever is overdue, or was asked for on the last one, is asked for again.
func (k *Keeper) begin(x *line) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.mu.line = x
	if len(k.mu.leases) == 0 {
		x.cancel()
	}
	now := time.Now()
	for _, l := range k.mu.leases {
		if !l.alone && (l.due.IsZero() || !l.asked.IsZero()) {
			k.ask(x, l, now)
			k.reschedule(l)
		}
	}
}

// send sends what is asked for on a stream.
func (k *Keeper) send(ctx context.Context, x *line) {
	for {
		k.mu.Lock()
		out := x.out
		x.out = nil
		k.mu.Unlock()
		for _, id := range out {
			k.mu.Lock()
			x.sent = append(x.sent, id)
			k.mu.Unlock()
			if x.stream.Send(id) != nil {
				return // receiving tells why
			}
		}
		select {
		case <-x.wake:
		case <-ctx.Done():
			return
		}
	}
}

// answered notes an answer. The time of the lease counts from when it was asked for.
func (k *Keeper) answered(x *line, a client.KeepAlive) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(x.sent) > 0 && x.sent[0] == a.ID {
		x.sent = x.sent[1:]
	}
	l := k.mu.leases[a.ID]
	if l == nil || l.asked.IsZero() || l.alone {
		return
	}
	k.mu.trouble = nil
	if a.TTL <= 0 {
		k.drop(l, ErrGone)
		return
	}
	l.confirm(a.TTL, l.asked)
	k.reschedule(l)
}

// queue is the leases in the order in which something is to be done about them.
type queue []*Lease

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].wake().Before(q[j].wake()) }

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
