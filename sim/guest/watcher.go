//go:build wasip1

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"vigil/client"
	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

func isUncertain(err error) bool { return errors.Is(err, client.ErrUncertain) }

// received is the newest revision up to which the watchers of all keys in this process have
// everything. A compaction is not above it: otherwise all of them could skip revisions, and the
// history would have a hole that cannot be judged.
var received atomic.Int64

// watcher keeps a watch open and reports its messages.
type watcher struct {
	c      *client.Client
	config *setup.Client
	rng    *rand.Rand
	w      setup.Watcher
	next   int64 // the revision from which it continues
	// restless watchers end their watch from time to time and continue with another one.
	restless bool
	// progress is the longest time between two requests for progress.
	progress time.Duration
}

func startWatcher(c *setup.Client, n int, rng *rand.Rand) error {
	w := &watcher{config: c, rng: rng, next: 2, restless: n%3 == 2, progress: time.Second}
	if c.Calm {
		w.restless, w.progress = false, 30*time.Second
	}
	w.w.Name, w.w.Next = fmt.Sprintf("watcher %d.%d", c.First, n), w.next
	endpoints := c.Endpoints
	if n%2 == 1 {
		w.w.From, w.w.To = "k/b", "k/e"
		endpoints = endpoints[n/2%len(endpoints):][:1]
		w.w.Endpoint = endpoints[0]
	}
	var err error
	if w.c, err = connect(endpoints...); err != nil {
		return err
	}
	report(setup.Report{Watcher: &w.w})
	go w.run()
	return nil
}

func (w *watcher) run() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		if w.restless {
			ctx, cancel = context.WithTimeout(ctx,
				time.Duration(20+w.rng.IntN(4000))*time.Millisecond+lull(w.config))
		}
		err := w.once(ctx)
		if errors.Is(err, client.ErrClosed) {
			cancel()
			return
		}
		if err != nil && ctx.Err() == nil && !passing(err) {
			report(setup.Report{Failed: fmt.Sprintf("%s: %v", w.w.Name, err)})
		}
		cancel()
		time.Sleep(time.Duration(1+w.rng.IntN(20)) * time.Millisecond)
	}
}

// once watches until the watch or the context ends.
func (w *watcher) once(ctx context.Context) error {
	opts := []client.WatchOption{client.FromRevision(w.next), client.WithPrevKV(),
		client.WithProgress()}
	key := w.w.From
	if w.w.To == "" {
		key = "\x00"
		opts = append(opts, client.WithFromKey())
	} else {
		opts = append(opts, client.WithRange(w.w.To))
	}
	watch := w.c.Watch(ctx, key, opts...)
	defer watch.Close()
	if w.rng.IntN(2) == 0 {
		go w.requestProgress(ctx, watch.RequestProgress, rand.New(rand.NewPCG(w.rng.Uint64(), 0)))
	}
	for b, err := range watch.Batches() {
		var compacted *client.CompactedError
		switch {
		case errors.As(err, &compacted):
			w.report(check.Message{Rev: compacted.Revision, Compacted: true})
			w.next = max(w.next, compacted.Revision)
			return nil
		case err != nil:
			return err
		}
		if len(b.Events) > 0 {
			m := check.Message{}
			for _, e := range b.Events {
				m.Events = append(m.Events,
					check.Event{Item: *item(&e.KV), Deleted: e.Type == client.Delete})
				m.Before = append(m.Before, item(e.PrevKV))
			}
			w.report(m)
		}
		if n := len(b.Events); n == 0 || b.Events[n-1].KV.ModRevision < b.Revision {
			w.report(check.Message{Rev: b.Revision})
		}
		w.next = max(w.next, b.Revision+1)
		if w.w.To == "" {
			received.Store(max(received.Load(), b.Revision))
		}
	}
	return nil
}

// requestProgress requests notifications until the watch ends.
func (w *watcher) requestProgress(ctx context.Context, request func(), rng *rand.Rand) {
	for ctx.Err() == nil {
		rest(w.config)
		time.Sleep(time.Duration(rng.Int64N(int64(w.progress))))
		request()
	}
}

func (w *watcher) report(m check.Message) {
	m.At = now()
	report(setup.Report{Watcher: &w.w, Message: &m})
	w.w.Messages++
}

// passing reports whether an error is that of a member that stops, has restarted or has no leader.
func passing(err error) bool {
	return client.Temporary(err) || errors.Is(err, client.ErrUnreachable) ||
		errors.Is(err, client.ErrLearnerUnsupported) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled)
}
