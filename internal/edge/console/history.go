package console

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vigil/internal/edge/console/decode"
)

// Bounds of a history.
const (
	maxVersions = 50              // of a key in one answer
	maxChanges  = 500             // of the store in one answer
	scanTime    = 5 * time.Second // to read old revisions
)

// version is a change of a key.
type version struct {
	keyView
	Deleted bool `json:"deleted,omitempty"`
	Size    int  `json:"size"`
	// Text is the beginning of the value, if it is a text.
	Text string `json:"text,omitempty"`
	// Cut is set if only the beginning of the key is here.
	Cut bool `json:"cut,omitempty"`
	span
}

// maxExcerpt limits the beginning of a value in a list.
const maxExcerpt = 200

func versionOf(kv *mvccpb.KeyValue, deleted bool) version {
	v := version{keyView: viewKey(kv), Deleted: deleted, Size: len(kv.Value)}
	if shown := kv.Value[:min(len(kv.Value), maxExcerpt)]; decode.IsText(shown) {
		v.Text = string(shown)
	}
	return v
}

// versions is a part of the history of a key, the newest change first.
type versions struct {
	Now      int64     `json:"now"`
	Compact  int64     `json:"compact"` // 0 if not known
	Versions []version `json:"versions"`
	// Before is where the next part begins, 0 at the end.
	Before int64 `json:"before,omitempty"`
	// Unread is set if there may be older changes: reading old revisions took too long.
	Unread bool `json:"unread,omitempty"`
}

// serveHistory lists the changes of a key before a revision. The changes since the key was created are read one by one; those before
// from the history of the store.
func (c *Console) serveHistory(r *request) (any, error) {
	key, err := r.bytes("key")
	if err != nil {
		return nil, err
	}
	before, err := r.number("before", 0, 1<<62)
	if err != nil {
		return nil, err
	}
	now, err := c.kv.Range(r.ctx, &etcdserverpb.RangeRequest{Key: key})
	if err != nil {
		return nil, err
	}
	out := &versions{Now: now.Header.Revision, Versions: []version{}}
	rev := before - 1
	if before == 0 || before > now.Header.Revision {
		rev = now.Header.Revision
	}
	for rev > 0 && len(out.Versions) < maxVersions {
		res, err := c.rangeOnce(r.ctx, &etcdserverpb.RangeRequest{Key: key, Revision: rev})
		if err != nil {
			if describe(err).Code == "compacted" {
				rev = 0
				break
			}
			return nil, err
		}
		if len(res.Kvs) == 0 {
			break
		}
		v := versionOf(res.Kvs[0], false)
		out.Versions = append(out.Versions, v)
		rev = v.Mod - 1
	}
	if rev > 0 && len(out.Versions) < maxVersions {
		rev, err = c.older(r.ctx, key, rev, out)
		if err != nil {
			return nil, err
		}
	}
	if rev > 0 {
		out.Before = rev + 1
	}
	return out, c.times.date(r.ctx, out.Versions)
}

// older adds changes up to a revision at which the key does not exist, from the history of the store. It returns the revision up to which
// there may be more, 0 if there is none.
func (c *Console) older(ctx context.Context, key []byte, upTo int64, out *versions) (int64, error) {
	var found []version // the newest last
	missing := 0
	scan := func(e *mvccpb.Event) bool {
		if e.Kv.ModRevision > upTo {
			return false
		}
		if found = append(found, versionOf(e.Kv, e.Type == mvccpb.DELETE)); len(found) > maxVersions {
			found = found[1:]
			missing++
		}
		return true
	}
	compact, done, err := c.scan(ctx, &etcdserverpb.WatchCreateRequest{Key: key, StartRevision: 1}, upTo, scan)
	if err != nil {
		return 0, err
	}
	out.Compact, out.Unread = compact, !done
	for i := len(found) - 1; i >= 0; i-- {
		if len(out.Versions) == maxVersions {
			return found[i].Mod, nil
		}
		out.Versions = append(out.Versions, found[i])
	}
	if missing > 0 {
		return out.Versions[len(out.Versions)-1].Mod - 1, nil
	}
	if compact == 0 || compact > upTo || len(out.Versions) == maxVersions {
		return 0, nil
	}
	// The compaction has kept the state of the key at its revision.
	res, err := c.kv.Range(ctx, &etcdserverpb.RangeRequest{Key: key, Revision: compact})
	if err != nil && describe(err).Code != "compacted" {
		return 0, err
	}
	if err == nil && len(res.Kvs) > 0 {
		out.Versions = append(out.Versions, versionOf(res.Kvs[0], false))
	}
	return 0, nil
}

// scan calls f for the events of a watch up to a revision, until f returns false. done is false if the time was too short. If the start
// is compacted, the scan begins after the compact revision, which is returned.
func (c *Console) scan(ctx context.Context, create *etcdserverpb.WatchCreateRequest, upTo int64, f func(*mvccpb.Event) bool) (compact int64, done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	expired := func(err error) (int64, bool, error) {
		if ctx.Err() == context.DeadlineExceeded {
			return compact, false, nil
		}
		return compact, false, err
	}
	for {
		again, done, err := c.scanOnce(ctx, create, upTo, f)
		if err != nil {
			return expired(err)
		}
		if done {
			return compact, true, nil
		}
		compact, create.StartRevision = again, again+1
	}
}

// scanOnce is scan without the retry: compact is set if the start is compacted.
func (c *Console) scanOnce(ctx context.Context, create *etcdserverpb.WatchCreateRequest, upTo int64, f func(*mvccpb.Event) bool) (compact int64, done bool, err error) {
	if create.StartRevision > upTo {
		return 0, true, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := c.watch.Watch(ctx)
	if err != nil {
		return 0, false, err
	}
	create.Fragment = true
	if err := st.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		return 0, false, err
	}
	// A progress notification at a revision shows that there is no event up to it.
	go askProgress(ctx, st)
	for {
		res, err := st.Recv()
		if err != nil {
			return 0, false, err
		}
		if res.Canceled {
			if res.CompactRevision > 0 {
				return res.CompactRevision, false, nil
			}
			return 0, false, canceled(res)
		}
		for _, e := range res.Events {
			if !f(e) {
				return 0, true, nil
			}
		}
		if !res.Created && len(res.Events) == 0 && res.Header.Revision >= upTo {
			return 0, true, nil
		}
	}
}

// canceled is the error of a watcher that was canceled.
func canceled(res *etcdserverpb.WatchResponse) error {
	text := res.CancelReason
	if text == "" {
		text = "the watcher was canceled"
	}
	f := describe(badRequest("%s", text))
	for _, k := range known {
		if strings.Contains(text, k.text) {
			f = &failure{Status: k.status, Code: k.code, Text: text, Next: k.next}
		}
	}
	return f
}

// askProgress asks for progress notifications until the context ends: one is sent only when the watcher has caught up.
func askProgress(ctx context.Context, st etcdserverpb.Watch_WatchClient) {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		if st.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_ProgressRequest{ProgressRequest: &etcdserverpb.WatchProgressRequest{}}}) != nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// changes is a part of the changes of the store between two revisions, the newest first.
type changes struct {
	Now     int64     `json:"now"`
	Compact int64     `json:"compact"`
	Changes []version `json:"changes"`
	// Before is the newest revision of the next part, 0 at the end.
	Before int64 `json:"before,omitempty"`
	// Unread is set if reading took too long for more.
	Unread bool `json:"unread,omitempty"`
	// Cut is a revision with more changes than one answer has; those that are not here are in no part.
	Cut int64 `json:"cut,omitempty"`
}

// serveChanges lists what changed below a prefix between two revisions. A watch reads forward, so the newest changes are found in spans of
// revisions, each longer than the one after it.
func (c *Console) serveChanges(r *request) (any, error) {
	prefix, err := r.bytes("prefix")
	if err != nil {
		return nil, err
	}
	first, err := r.number("from", 1, 1<<62)
	if err != nil {
		return nil, err
	}
	to, err := r.number("to", 0, 1<<62)
	if err != nil {
		return nil, err
	}
	now, err := c.kv.Range(r.ctx, &etcdserverpb.RangeRequest{Key: from(prefix), RangeEnd: endOf(prefix), CountOnly: true})
	if err != nil {
		return nil, err
	}
	out := &changes{Now: now.Header.Revision, Changes: []version{}}
	if to == 0 {
		to = out.Now
	}
	if first > to || to > out.Now {
		return nil, badRequest("the revisions %d to %d: the first must not be after the last, and the store is at %d", first, to, out.Now)
	}
	left, until := room(maxPageBytes), time.Now().Add(scanTime)
	for last, span := to, int64(maxChanges); last >= max(first, 1); span *= 4 {
		if len(out.Changes) >= maxChanges || left <= 0 || out.Unread {
			out.Before = last
			break
		}
		start := max(first, 1, last-span+1)
		found := newest{most: maxChanges - len(out.Changes), room: int(left)}
		create := &etcdserverpb.WatchCreateRequest{Key: from(prefix), RangeEnd: endOf(prefix), StartRevision: start}
		compact, done, err := c.scan(r.ctx, create, last, func(e *mvccpb.Event) bool {
			if e.Kv.ModRevision <= last {
				found.add(versionOf(e.Kv, e.Type == mvccpb.DELETE))
			}
			return e.Kv.ModRevision <= last
		})
		if err != nil {
			return nil, err
		}
		if out.Unread = !done || time.Now().After(until); !done {
			continue // these are the older ones of the span
		}
		last = start - 1
		for _, g := range slices.Backward(found.revisions) {
			for _, v := range slices.Backward(g.changes) {
				out.Changes = append(out.Changes, v)
			}
			left.take(g.size)
			if g.cut {
				out.Cut = g.changes[0].Mod
			}
		}
		if found.dropped > 0 {
			last = found.dropped
		}
		if out.Compact = compact; compact > 0 && found.dropped == 0 {
			break
		}
	}
	out.Unread = out.Unread && out.Before > 0
	return out, c.times.date(r.ctx, out.Changes)
}

// newest keeps the newest of the changes that are added in their order: whole revisions, the last ones for which there is room.
type newest struct {
	most, room int // changes, and bytes of their keys
	revisions  []oneRevision
	n, size    int
	dropped    int64 // the newest revision that is not kept
}

// oneRevision has the changes of a revision. It is cut if it alone is too large for an answer.
type oneRevision struct {
	changes []version
	size    int
	cut     bool
}

func (w *newest) add(v version) {
	if n := len(w.revisions); n == 0 || w.revisions[n-1].changes[0].Mod != v.Mod {
		w.revisions = append(w.revisions, oneRevision{})
	}
	g := &w.revisions[len(w.revisions)-1]
	if len(g.changes) >= 10*maxChanges || g.size > maxPageBytes {
		g.cut = true
		return
	}
	g.changes = append(g.changes, v)
	g.size += len(v.Key)
	w.n++
	w.size += len(v.Key)
	for len(w.revisions) > 1 && (w.n-len(w.revisions[0].changes) >= w.most || w.size-w.revisions[0].size >= w.room) {
		w.n -= len(w.revisions[0].changes)
		w.size -= w.revisions[0].size
		w.dropped = w.revisions[0].changes[0].Mod
		w.revisions = w.revisions[1:]
	}
}

// serveDiff compares a key at two revisions.
func (c *Console) serveDiff(r *request) (any, error) {
	key, err := r.bytes("key")
	if err != nil {
		return nil, err
	}
	var texts [2]string
	var names [2]string
	for i, name := range []string{"a", "b"} {
		rev, err := r.number(name, 0, 1<<62)
		if err != nil {
			return nil, err
		}
		res, err := c.kv.Range(r.ctx, &etcdserverpb.RangeRequest{Key: key, Revision: rev})
		if err != nil {
			return nil, err
		}
		names[i] = "revision " + r.URL.Query().Get(name)
		if len(res.Kvs) == 0 {
			names[i] += " (no such key)"
			continue
		}
		v := decode.Views(res.Kvs[0].Value[:min(len(res.Kvs[0].Value), maxShown)])[0]
		texts[i] = v.Text
		if texts[i] != "" && texts[i][len(texts[i])-1] != '\n' {
			texts[i] += "\n"
		}
	}
	out := diff.Diff(names[0], []byte(texts[0]), names[1], []byte(texts[1]))
	return map[string]any{"diff": string(out[:min(len(out), decode.MaxText)]), "cut": len(out) > decode.MaxText, "same": texts[0] == texts[1]}, nil
}
