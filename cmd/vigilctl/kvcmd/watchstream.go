package kvcmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// watchStream runs watches on one stream and prints the answers with their headers, which the
// client library's watchers do not expose. After a broken stream, each watch resumes after the last
// printed revision.
type watchStream struct {
	env         *cli.Env
	interactive bool
	// wake has an element when there is a request to send.
	wake chan struct{}
	// cluster is the ID of the cluster, 0 before the first answer; seen is the newest revision in a
	// header. Owned by the goroutine of run.
	cluster uint64
	seen    int64

	mu struct {
		sync.Mutex
		watches  []*watchState
		progress int // progress requests to send
	}
}

// watchState is one watch. Owned by the goroutine of run, except for the fields that add sets.
type watchState struct {
	watchRequest
	id      int64
	sent    bool // the current stream has the request
	created bool // some stream has created the watch
	over    bool
	// store is the revision of the store when the watch was created. A progress notification of the
	// stream applies to the watch only above that revision: the answer to an older request may
	// arrive after the creation.
	store int64
}

func newWatchStream(env *cli.Env) *watchStream {
	return &watchStream{env: env, wake: make(chan struct{}, 1)}
}

// addWatch adds a watch. Any goroutine may call it.
func (w *watchStream) addWatch(r watchRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	one := &watchState{watchRequest: r, id: int64(len(w.mu.watches)) + 1}
	one.create.WatchId = one.id
	w.mu.watches = append(w.mu.watches, one)
	w.signal()
}

// requestProgress requests a progress notification.
func (w *watchStream) requestProgress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.progress++
	w.signal()
}

func (w *watchStream) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// errWatchOver reports that the server has canceled the watch.
var errWatchOver = exit.With(exit.Interrupted, errors.New("watch is canceled by the server"))

// retryPause is the pause before trying another member. It doubles with each stream that breaks
// soon, up to maxPause.
const (
	retryPause = 200 * time.Millisecond
	maxPause   = 3 * time.Second
)

// runWatches watches until an interrupt or a permanent error.
func (w *watchStream) runWatches(ctx context.Context) error {
	reached := false
	for pause := retryPause; ; pause = min(2*pause, maxPause) {
		began := time.Now()
		err := w.runStream(ctx, &reached)
		if time.Since(began) > maxPause {
			pause = retryPause
		}
		var e *exit.Error
		switch {
		case errors.As(err, &e):
			return err
		case ctx.Err() != nil:
			return exit.Silent(exit.Interrupted)
		case !reached || cli.Permanent(err) || unusable(err) || errors.Is(err, errPrint):
			return cli.CallError(err)
		}
		fmt.Fprintf(w.env.Stderr, "the watch was interrupted and continues: %v\n",
			cli.CallError(err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

var errPrint = errors.New("cannot print")

// unusable reports whether a stream ended with a malformed or too large answer. The next stream
// would have the same answer.
func unusable(err error) bool {
	switch st := status.Convert(err); st.Code() {
	case codes.Internal:
		return strings.Contains(st.Message(), "unmarshal")
	case codes.ResourceExhausted:
		return !strings.HasPrefix(st.Message(), "etcdserver:")
	}
	return false
}

// runStream watches on one stream. Each stream uses a new client, which authenticates again.
// reached becomes true with the first answer.
func (w *watchStream) runStream(ctx context.Context, reached *bool) error {
	cl, err := w.env.Connect(ctx)
	if err != nil {
		if *reached && exit.Code(err) == exit.BadConnection {
			return errors.Unwrap(err)
		}
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(ctx,
		rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader))
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
			for _, r := range w.takeRequests() {
				if err := s.Send(r); err != nil {
					return <-broken
				}
			}
		case r := <-received:
			*reached = true
			err := w.checkStore(ctx, cl, r)
			if err == nil {
				err = w.handleResponse(ctx, r)
			}
			if err != nil {
				return err
			}
		case err := <-broken:
			return w.streamError(err)
		}
	}
}

// checkStore returns an error if another cluster answers, or if the cluster has lost revisions:
// events would silently be missing. A member that only lags has not lost any.
func (w *watchStream) checkStore(ctx context.Context, cl *client.Client,
	r *etcdserverpb.WatchResponse) error {
	h := r.GetHeader()
	if w.cluster == 0 {
		w.cluster = h.GetClusterId()
	}
	if h.GetClusterId() != w.cluster {
		return exit.With(exit.Failure,
			fmt.Errorf("%w: it was %x and is %x", client.ErrClusterChanged, w.cluster,
				h.GetClusterId()))
	}
	if r.GetCreated() && h.GetRevision() < w.seen {
		ctx, cancel := context.WithTimeout(ctx, w.env.CommandTimeout)
		defer cancel()
		// This read is linearizable: it waits for a member that lags. The user may read a watched
		// key.
		now, err := cl.Get(ctx, w.watchedKey(), client.WithKeysOnly())
		switch {
		case err != nil:
			return err
		case now.Header.ClusterID != w.cluster:
			return exit.With(exit.Failure,
				fmt.Errorf("%w: it was %x and is %x", client.ErrClusterChanged, w.cluster,
					now.Header.ClusterID))
		case now.Header.Revision < w.seen:
			return exit.With(exit.Failure,
				fmt.Errorf("%w: it was at revision %d and is at %d", client.ErrRolledBack, w.seen,
					now.Header.Revision))
		}
	}
	w.seen = max(w.seen, h.GetRevision())
	return nil
}

// watchedKey returns one of the watched keys.
func (w *watchStream) watchedKey() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.mu.watches {
		if key := one.create.GetKey(); !one.over && len(key) > 0 {
			return string(key)
		}
	}
	return "\x00"
}

// takeRequests returns the requests to send, and forgets them.
func (w *watchStream) takeRequests() (list []*etcdserverpb.WatchRequest) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, one := range w.mu.watches {
		if !one.sent && !one.over {
			one.sent = true
			list = append(list, &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: one.create}})
		}
	}
	for ; w.mu.progress > 0; w.mu.progress-- {
		list = append(list, &etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}})
	}
	return list
}

// broadcastID is the watch ID of a progress notification for all watches of a stream.
const broadcastID = -1

// handleResponse prints an answer.
func (w *watchStream) handleResponse(ctx context.Context, r *etcdserverpb.WatchResponse) error {
	w.mu.Lock()
	list := slices.Clone(w.mu.watches)
	w.mu.Unlock()
	if r.GetWatchId() == broadcastID && !r.GetCreated() && !r.GetCanceled() {
		for _, one := range list {
			if one.created && !one.over {
				if err := w.printResponse(ctx, one, r); err != nil {
					return err
				}
				if rev := r.GetHeader().GetRevision(); rev > one.store {
					one.resumeAt(rev + 1)
				}
			}
		}
		return nil
	}
	i := r.GetWatchId() - 1
	if r.GetWatchId() == broadcastID {
		// A rejected watch has no ID. It is the first watch that was sent and not answered.
		i = int64(slices.IndexFunc(list,
			func(one *watchState) bool { return one.sent && !one.created && !one.over }))
	}
	if i < 0 || i >= int64(len(list)) {
		return nil
	}
	one := list[i]
	if r.GetCanceled() {
		return w.printCanceled(ctx, one, r)
	}
	if r.GetCreated() {
		one.created, one.store = true, r.GetHeader().GetRevision()
		if one.create.StartRevision == 0 {
			one.create.StartRevision = r.GetHeader().GetRevision() + 1
		}
		return nil
	}
	if err := w.printResponse(ctx, one, r); err != nil {
		return err
	}
	next := r.GetHeader().GetRevision() + 1
	if n := len(r.GetEvents()); n > 0 {
		next = r.GetEvents()[n-1].GetKv().GetModRevision() + 1
	}
	one.resumeAt(next)
	return nil
}

// resumeAt advances the revision at which a watch resumes.
func (one *watchState) resumeAt(rev int64) {
	one.create.StartRevision = max(one.create.StartRevision, rev)
}

// printResponse prints the events or progress of a watch.
func (w *watchStream) printResponse(ctx context.Context, one *watchState,
	r *etcdserverpb.WatchResponse) error {
	if err := printWatch(ctx, w.env, r, one.command); err != nil {
		var e *exit.Error
		if errors.As(err, &e) {
			return err
		}
		return fmt.Errorf("%w: %w", errPrint, err)
	}
	return nil
}

// printCanceled prints that the server has canceled a watch.
func (w *watchStream) printCanceled(ctx context.Context, one *watchState,
	r *etcdserverpb.WatchResponse) error {
	why := r.GetCancelReason()
	switch {
	case r.GetCompactRevision() > 0:
		why = client.ErrCompacted.Error()
		fmt.Fprintf(w.env.Stderr,
			"revision %d was asked for; the store was compacted at revision %d\n",
			one.create.StartRevision, r.GetCompactRevision())
	case why == "":
		why = rpctypes.ErrFutureRev.Error()
	}
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

// streamError returns the error of a broken stream. Without a leader it is errWatchOver, unless the
// watch is interactive.
func (w *watchStream) streamError(err error) error {
	if st := status.Convert(err); st.Code() == codes.Unavailable &&
		st.Message() == rpctypes.ErrNoLeader.Error() && !w.interactive {
		fmt.Fprintf(w.env.Stderr, "watch was canceled (%s)\n", st.Message())
		return errWatchOver
	}
	return err
}
