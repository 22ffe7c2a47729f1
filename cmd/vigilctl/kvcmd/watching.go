package kvcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
)

// watching is a stream of watches whose answers are printed as they come: headers and all, which the client library's
// watchers do not tell. After the loss of a member each watch goes on behind what was printed.
type watching struct {
	env         *cli.Env
	interactive bool
	// wake holds an element when there is something to send.
	wake chan struct{}
	// cluster is the id of the cluster that is watched, 0 before the first answer, and seen the newest revision that a
	// header had. Owned by the goroutine of run.
	cluster uint64
	seen    int64

	mu struct {
		sync.Mutex
		watches []*oneWatch
		asked   int // requests for progress that were not sent
	}
}

// oneWatch is a watch. Owned by the goroutine of run but for what is set when it is made.
type oneWatch struct {
	watchRequest
	id int64
	// sent tells that the present stream was asked for it; known that some stream has created it.
	sent, known, over bool
}

func newWatching(env *cli.Env) *watching { return &watching{env: env, wake: make(chan struct{}, 1)} }

// add adds a watch; any goroutine may.
func (w *watching) add(r watchRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := &oneWatch{watchRequest: r, id: int64(len(w.mu.watches)) + 1}
	one.create.WatchId = one.id
	w.mu.watches = append(w.mu.watches, one)
	w.signal()
}

// progress asks how far the member is.
func (w *watching) progress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.asked++
	w.signal()
}

func (w *watching) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// errWatchOver ends a program all whose watches the server has ended.
var errWatchOver = exit.With(exit.Interrupted, errors.New("watch is canceled by the server"))

// retryPause is how long to wait before another member is tried.
const retryPause = 200 * time.Millisecond

// run watches until the program is interrupted or something ends it.
func (w *watching) run(ctx context.Context) error {
	reached := false
	for {
		err := w.stream(ctx, &reached)
		var e *exit.Error
		switch {
		case errors.As(err, &e):
			return err
		case ctx.Err() != nil:
			return exit.Silent(exit.Interrupted)
		case !reached || cli.Permanent(err) || errors.Is(err, errPrint):
			return cli.CallError(err)
		}
		fmt.Fprintf(w.env.Stderr, "the watch was interrupted and goes on: %v\n", cli.CallError(err))
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
}

var errPrint = errors.New("cannot print")

// stream watches on one stream, with a client of its own so that what it proves its identity with is new, too.
func (w *watching) stream(ctx context.Context, reached *bool) error {
	cl, err := w.env.Connect(ctx)
	if err != nil {
		if *reached && exit.Code(err) == exit.BadConnection {
			return errors.Unwrap(err)
		}
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader))
	defer cancel()
	s, err := etcdserverpb.NewWatchClient(cl.Conn()).Watch(ctx)
	if err != nil {
		return err
	}
	w.mu.Lock()
	for _, one := range w.mu.watches {
		one.sent = false
	}
	w.mu.Unlock()
	w.signal()
	received := make(chan *etcdserverpb.WatchResponse)
	broken := make(chan error, 1)
	go func() {
		for {
			r, err := s.Recv()
			if err != nil {
				broken <- err
				return
			}
			select {
			case received <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case <-w.wake:
			for _, r := range w.requests() {
				if err := s.Send(r); err != nil {
					return <-broken
				}
			}
		case r := <-received:
			*reached = true
			err := w.sameStore(ctx, cl, r)
			if err == nil {
				err = w.answer(ctx, r)
			}
			if err != nil {
				return err
			}
		case err := <-broken:
			return w.brokenBy(err)
		}
	}
}

// sameStore ends the program if the cluster that answers is another one than before, or has lost revisions: events
// would be missing, and nothing else would show it. A member that only lags behind the others is not rolled back.
func (w *watching) sameStore(ctx context.Context, cl *client.Client, r *etcdserverpb.WatchResponse) error {
	h := r.GetHeader()
	if w.cluster == 0 {
		w.cluster = h.GetClusterId()
	}
	if h.GetClusterId() != w.cluster {
		return exit.With(exit.Failure, fmt.Errorf("%w: it was %x and is %x", client.ErrClusterChanged, w.cluster, h.GetClusterId()))
	}
	if r.GetCreated() && h.GetRevision() < w.seen {
		ctx, cancel := context.WithTimeout(ctx, w.env.CommandTimeout)
		defer cancel()
		// A linearizable read, which a member that lags behind answers late. Who watches a key may read it.
		now, err := cl.Get(ctx, w.someKey(), client.WithKeysOnly())
		switch {
		case err != nil:
			return err
		case now.Header.ClusterID != w.cluster:
			return exit.With(exit.Failure, fmt.Errorf("%w: it was %x and is %x", client.ErrClusterChanged, w.cluster, now.Header.ClusterID))
		case now.Header.Revision < w.seen:
			return exit.With(exit.Failure, fmt.Errorf("%w: it was at revision %d and is at %d", client.ErrRolledBack, w.seen, now.Header.Revision))
		}
	}
	w.seen = max(w.seen, h.GetRevision())
	return nil
}

// someKey returns a key that is watched.
func (w *watching) someKey() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.mu.watches {
		if key := one.create.GetKey(); !one.over && len(key) > 0 {
			return string(key)
		}
	}
	return "\x00"
}

// requests returns what is to be sent.
func (w *watching) requests() (list []*etcdserverpb.WatchRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.mu.watches {
		if !one.sent && !one.over {
			one.sent = true
			list = append(list, &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: one.create}})
		}
	}
	for ; w.mu.asked > 0; w.mu.asked-- {
		list = append(list, &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}})
	}
	return list
}

// broadcastID is that of progress of all watches of a stream.
const broadcastID = -1

// answer prints an answer.
func (w *watching) answer(ctx context.Context, r *etcdserverpb.WatchResponse) error {
	w.mu.Lock()
	list := slices.Clone(w.mu.watches)
	w.mu.Unlock()
	if r.GetWatchId() == broadcastID && !r.GetCreated() && !r.GetCanceled() {
		for _, one := range list {
			if one.known && !one.over {
				if err := w.deliver(ctx, one, r); err != nil {
					return err
				}
			}
		}
		return nil
	}
	i := r.GetWatchId() - 1
	if r.GetWatchId() == broadcastID {
		// A watch that is refused has no id: it is the first that was asked for and not answered.
		i = int64(slices.IndexFunc(list, func(one *oneWatch) bool { return one.sent && !one.known && !one.over }))
	}
	if i < 0 || i >= int64(len(list)) {
		return nil
	}
	one := list[i]
	if r.GetCanceled() {
		return w.canceled(ctx, one, r)
	}
	if r.GetCreated() {
		one.known = true
		if one.create.StartRevision == 0 {
			one.create.StartRevision = r.GetHeader().GetRevision() + 1
		}
		return nil
	}
	return w.deliver(ctx, one, r)
}

// deliver prints events or progress of a watch, and remembers what comes next.
func (w *watching) deliver(ctx context.Context, one *oneWatch, r *etcdserverpb.WatchResponse) error {
	if err := printWatch(ctx, w.env, r, one.command); err != nil {
		var e *exit.Error
		if errors.As(err, &e) {
			return err
		}
		return fmt.Errorf("%w: %w", errPrint, err)
	}
	next := r.GetHeader().GetRevision() + 1
	if n := len(r.GetEvents()); n > 0 {
		next = r.GetEvents()[n-1].GetKv().GetModRevision() + 1
	}
	one.create.StartRevision = max(one.create.StartRevision, next)
	return nil
}

// canceled tells that the server has ended a watch.
func (w *watching) canceled(ctx context.Context, one *oneWatch, r *etcdserverpb.WatchResponse) error {
	why := r.GetCancelReason()
	switch {
	case r.GetCompactRevision() > 0:
		why = client.ErrCompacted.Error()
	case why == "":
		why = rpctypes.ErrFutureRev.Error()
	}
	return w.ended(ctx, one, r, why)
}

func (w *watching) ended(ctx context.Context, one *oneWatch, r *etcdserverpb.WatchResponse, why string) error {
	one.over = true
	fmt.Fprintf(w.env.Stderr, "watch was canceled (%s)\n", why)
	if err := printWatch(ctx, w.env, r, one.command); err != nil {
		return err
	}
	if w.interactive {
		return nil
	}
	return errWatchOver
}

// brokenBy tells of a stream that ended because there is no leader, which ends watches; other reasons do not.
func (w *watching) brokenBy(err error) error {
	if st := status.Convert(err); st.Code() == codes.Unavailable && st.Message() == rpctypes.ErrNoLeader.Error() && !w.interactive {
		fmt.Fprintf(w.env.Stderr, "watch was canceled (%s)\n", st.Message())
		return errWatchOver
	}
	return err
}
