package console

import (
	"bytes"
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// tailLine is a line of a tail.
type tailLine struct {
	Revision int64     `json:"revision"`
	Created  bool      `json:"created,omitempty"`
	Events   []version `json:"events,omitempty"`
	// Skipped counts events before those of this line that were not sent, because the reader was
	// too slow.
	Skipped int64 `json:"skipped,omitempty"`
}

// Limits of a tail.
const (
	tailPause     = 100 * time.Millisecond // between lines: one line has all events of this time
	maxTailEvents = 1000                   // in one line
	maxTailQueued = 20_000                 // events that wait for a slow reader
	maxTailBytes  = 8 << 20                // of memory for waiting events
	// of memory for the waiting events of all tails, in equal shares
	allTailBytes = 64 << 20
	eventBytes   = 200     // of memory for an event, in addition to its key and excerpt
	maxTailKey   = 2 << 10 // of a key: a page keeps many events
)

// bytesOf returns the memory that an event of a tail takes.
func bytesOf(v *version) int { return eventBytes + len(v.Key) + len(v.Text) }

// serveTail streams the changes of the keys with a prefix, starting at a revision.
func (c *Console) serveTail(r *request, out *lines) error {
	prefix, err := r.bytes("prefix")
	if err != nil {
		return err
	}
	rev, err := r.number("rev", 0, 1<<62)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.ctx)
	st, err := c.watch.Watch(ctx)
	if err != nil {
		cancel()
		return err
	}
	create := &etcdserverpb.WatchCreateRequest{Key: from(prefix), RangeEnd: endOf(prefix),
		StartRevision: rev, ProgressNotify: true, Fragment: true}
	if err := st.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		cancel()
		return err
	}
	t := &tail{wake: make(chan struct{}, 1), streams: &c.streams}
	var receiver sync.WaitGroup
	receiver.Go(func() { t.receiveEvents(st) })
	defer receiver.Wait()
	defer cancel()
	beats := time.NewTicker(beatInterval)
	defer beats.Stop()
	for {
		select {
		case <-t.wake:
		case <-beats.C:
			if err := out.send(c.beat()); err != nil {
				return err
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		}
		for more := true; more; {
			line, rest, err := t.takeLine()
			if line != nil {
				if err := out.send(line); err != nil {
					return err
				}
			}
			if err != nil && !rest {
				return err
			}
			more = rest
		}
		select {
		case <-time.After(tailPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tail has the events of a watch that wait to be sent. The receiver adds them without ever waiting
// for the reader, so that the watcher does not lag. If the reader is too slow, the oldest events
// are skipped and counted.
type tail struct {
	wake    chan struct{} // has room for one
	streams *streams      // all streams, which share the memory

	mu struct {
		sync.Mutex
		line  tailLine // the next one
		bytes int
		fresh bool // the line has something to send
		end   error
	}
}

// receiveEvents adds the events of a watch until it ends.
func (t *tail) receiveEvents(st etcdserverpb.Watch_WatchClient) {
	for {
		res, err := st.Recv()
		if err == nil && res.Canceled {
			err = canceled(res)
		}
		t.addResponse(res, err)
		if err != nil {
			return
		}
	}
}

// addResponse adds a response, or the end of the watch.
func (t *tail) addResponse(res *etcdserverpb.WatchResponse, end error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.end = end; end == nil {
		now := time.Now().UnixMilli()
		for _, e := range res.Events {
			v := versionOf(e.Kv, e.Type == mvccpb.DELETE)
			if len(v.Key) > maxTailKey {
				v.Key, v.Cut = v.Key[:maxTailKey], true
			}
			// the response may be part of a large allocation
			v.Key, v.To = bytes.Clone(v.Key), now
			t.mu.line.Events = append(t.mu.line.Events, v)
			t.mu.bytes += bytesOf(&v)
		}
		most := min(maxTailBytes, allTailBytes/t.streams.count())
		for n := len(t.mu.line.Events); n > maxTailQueued || n > 1 && t.mu.bytes > most; n-- {
			oldest := &t.mu.line.Events[0]
			t.mu.bytes -= bytesOf(oldest)
			*oldest = version{}
			t.mu.line.Events = t.mu.line.Events[1:]
			t.mu.line.Skipped++
		}
		t.mu.line.Revision = res.Header.Revision
		t.mu.line.Created = t.mu.line.Created || res.Created
		t.mu.fresh = true
	}
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// takeLine returns the next line, nil if there is nothing new. It also returns whether another line
// follows, and the end of the watch.
func (t *tail) takeLine() (next *tailLine, rest bool, end error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.mu.fresh {
		return nil, false, t.mu.end
	}
	out := t.mu.line
	t.mu.line.Created, t.mu.line.Skipped, t.mu.line.Events = false, 0, nil
	if rest = len(out.Events) > maxTailEvents; rest {
		out.Events, t.mu.line.Events = out.Events[:maxTailEvents:maxTailEvents],
			out.Events[maxTailEvents:]
	}
	for i := range out.Events {
		t.mu.bytes -= bytesOf(&out.Events[i])
	}
	t.mu.fresh = rest
	return &out, rest, t.mu.end
}
