package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
	"vigil/sim/check"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// watcher keeps a watch open and records its messages.
type watcher struct {
	check.SharedRecord
	clock func() time.Duration
	rng   *rand.Rand
	// clients are the members it uses, in turn. With one client the library resumes the watch; with
	// several the watcher sometimes ends its watch and continues at another member.
	clients []*clientv3.Client
	// all is the history to which a watcher of all keys adds its events.
	all *check.SharedHistory
	// failed reports a message that no watcher may receive.
	failed  func(format string, args ...any)
	resumed int
	stop    context.CancelFunc
	done    chan struct{}
}

// run watches until the context ends.
func (w *watcher) run(ctx context.Context) {
	defer close(w.done)
	for ; ctx.Err() == nil; w.resumed++ {
		c := w.clients[w.resumed%len(w.clients)]
		life := time.Hour
		if len(w.clients) > 1 {
			life = time.Duration(20+w.rng.IntN(1500)) * time.Millisecond
		}
		sub, cancel := context.WithTimeout(ctx, life)
		if err := w.once(clientv3.WithRequireLeader(sub), c); err != nil && ctx.Err() == nil {
			if !passing(err) {
				w.failed("%s: %v", w.R.Name, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
		cancel()
	}
}

// once watches until the watch or the context ends.
func (w *watcher) once(ctx context.Context, c *clientv3.Client) error {
	from := w.Resume()
	opts := []clientv3.OpOption{clientv3.WithRev(from), clientv3.WithPrevKV(),
		clientv3.WithProgressNotify(), clientv3.WithFragment()}
	if w.R.To == "" {
		opts = append(opts, clientv3.WithFromKey())
	} else {
		opts = append(opts, clientv3.WithRange(w.R.To))
	}
	key := w.R.From
	if key == "" {
		key = "\x00"
	}
	if len(w.clients) > 1 && w.rng.IntN(2) == 0 {
		// Ask for progress too, at some moment.
		timer := time.AfterFunc(time.Duration(w.rng.IntN(300))*time.Millisecond,
			func() { _ = c.RequestProgress(ctx) })
		defer timer.Stop()
	}
	for r := range c.Watch(ctx, key, opts...) {
		now := w.clock()
		if r.CompactRevision != 0 {
			w.Add(check.Message{At: now, Rev: r.CompactRevision, Compacted: true})
			return nil
		}
		if err := r.Err(); err != nil {
			return err
		}
		if r.IsProgressNotify() {
			w.Add(check.Message{At: now, Rev: r.Header.Revision})
			continue
		}
		m := check.Message{At: now}
		for _, e := range r.Events {
			m.Events = append(m.Events,
				check.Event{Item: *itemOf(e.Kv), Deleted: e.Type == clientv3.EventTypeDelete})
			m.Before = append(m.Before, itemOf(e.PrevKv))
		}
		if len(m.Events) == 0 {
			continue
		}
		if w.all != nil {
			if err := w.addToHistory(m); err != nil {
				w.failed("%s: not reliable: %v", w.R.Name, err)
			}
		}
		w.Add(m)
	}
	return ctx.Err()
}

// addToHistory adds a message to the history, revision by revision.
func (w *watcher) addToHistory(m check.Message) error {
	for len(m.Events) > 0 {
		rev, n := m.Events[0].Mod, 1
		for n < len(m.Events) && m.Events[n].Mod == rev {
			n++
		}
		if err := w.all.Add(rev, m.At, m.Events[:n]); err != nil {
			return err
		}
		m.Events = m.Events[n:]
	}
	return nil
}

// passing reports whether an error is that of a member that stops, has restarted or has no leader.
func passing(err error) bool {
	return errors.Is(err, rpctypes.ErrNoLeader) ||
		errors.Is(err, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		status.Code(err) == codes.Unavailable || status.Code(err) == codes.Canceled
}
