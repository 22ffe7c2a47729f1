package console

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vigil/internal/edge/console/decode"
)

// Limits of a history.
const (
	maxVersions = 50              // of a key in one answer
	maxChanges  = 500             // of the store in one answer
	scanTime    = 5 * time.Second // to read old revisions
)

// version is one change of a key.
type version struct {
	keyView
	Deleted bool `json:"deleted,omitempty"`
	Size    int  `json:"size"`
	// Text is the beginning of the value if that is text.
	Text string `json:"text,omitempty"`
	// Cut is set if the key is cut off.
	Cut bool `json:"cut,omitempty"`
	span
}

// maxExcerpt limits the excerpt of a value in a list.
const maxExcerpt = 200

func versionOf(kv *mvccpb.KeyValue, deleted bool) version {
	v := version{keyView: viewKey(kv), Deleted: deleted, Size: len(kv.Value)}
	if shown := kv.Value[:min(len(kv.Value), maxExcerpt)]; decode.IsText(shown) {
		v.Text = string(shown)
	}
	return v
}

// versions is a part of a key's history, the newest change first.
type versions struct {
	Now      int64     `json:"now"`
	Compact  int64     `json:"compact"` // 0 if unknown
	Versions []version `json:"versions"`
	// Before is the start of the next part, 0 at the end.
	Before int64 `json:"before,omitempty"`
	// Unread is set if there may be older changes, because reading old revisions took too long.
	Unread bool `json:"unread,omitempty"`
}

// serveHistory lists the changes of a key before a revision. It reads the changes since the key's
// creation one by one, and older ones from the history of the store.
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
		rev, err = c.addOlder(r.ctx, key, rev, out)
		if err != nil {
			return nil, err
		}
	}
	if rev > 0 {
		out.Before = rev + 1
	}
	return out, c.times.dateChanges(r.ctx, out.Versions)
}

// addOlder adds changes from the history of the store, up to a revision at which the key does not
// exist. It returns the revision up to which there may be more, 0 if there are none.
func (c *Console) addOlder(ctx context.Context, key []byte, upTo int64,
	out *versions) (int64, error) {
	found, err := c.backward(ctx, &etcdserverpb.WatchCreateRequest{Key: key}, 1, upTo,
		maxVersions-len(out.Versions))
	if err != nil {
		return 0, err
	}
	out.Versions = append(out.Versions, found.list...)
	out.Compact, out.Unread = found.compact, found.unread
	if found.before > 0 || found.compact == 0 || found.compact > upTo {
		return found.before, nil
	}
	// The compaction has kept the key's state at its revision.
	if len(out.Versions) == maxVersions {
		return found.compact, nil
	}
	res, err := c.kv.Range(ctx, &etcdserverpb.RangeRequest{Key: key, Revision: found.compact})
	if err != nil && describe(err).Code != "compacted" {
		return 0, err
	}
	if err == nil && len(res.Kvs) > 0 {
		out.Versions = append(out.Versions, versionOf(res.Kvs[0], false))
	}
	return 0, nil
}

// scanEvents calls f for the events of a watch up to a revision, until f returns false. done is
// false if the time ran out. If the start is compacted, it begins after the compact revision and
// returns that revision.
func (c *Console) scanEvents(ctx context.Context,
	create *etcdserverpb.WatchCreateRequest, upTo int64,
	f func(*mvccpb.Event) bool) (compact int64, done bool, err error) {
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

// scanOnce is scanEvents without the retry. compact is set if the start is compacted.
func (c *Console) scanOnce(ctx context.Context, create *etcdserverpb.WatchCreateRequest, upTo int64,
	f func(*mvccpb.Event) bool) (compact int64, done bool, err error) {
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
	// A progress notification at a revision shows that no more events up to it follow.
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

// canceled returns the error of a canceled watcher.
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

// askProgress requests progress notifications until the context ends: the server sends one only
// when the watcher has caught up.
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

// changes is a part of the changes in the store between two revisions, the newest first.
type changes struct {
	Now     int64     `json:"now"`
	Compact int64     `json:"compact"`
	Changes []version `json:"changes"`
	// Before is the newest revision of the next part, 0 at the end.
	Before int64 `json:"before,omitempty"`
	// Unread is set if there may be more, but reading took too long.
	Unread bool `json:"unread,omitempty"`
	// Cut is a revision with more changes than fit in one answer. No part has the missing ones.
	Cut int64 `json:"cut,omitempty"`
}

// serveChanges lists the changes below a prefix between two revisions.
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
	now, err := c.kv.Range(r.ctx,
		&etcdserverpb.RangeRequest{Key: from(prefix), RangeEnd: endOf(prefix), CountOnly: true})
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
	found, err := c.backward(r.ctx,
		&etcdserverpb.WatchCreateRequest{Key: from(prefix), RangeEnd: endOf(prefix)}, max(first, 1),
		to, maxChanges)
	if err != nil {
		return nil, err
	}
	out.Changes = append(out.Changes, found.list...)
	out.Compact, out.Before, out.Unread, out.Cut = found.compact, found.before,
		found.unread, found.cut
	return out, c.times.dateChanges(r.ctx, out.Changes)
}

// newestFirst is the result of a search for the changes between two revisions.
type newestFirst struct {
	list    []version
	compact int64 // 0 if no compaction was found
	before  int64 // the newest unread revision, 0 if there is none
	cut     int64 // a revision with only some of its changes in the list
	unread  bool  // the time ran out
}

// backward returns about as many of the newest changes as are wanted. A watch reads forward, so
// backward reads spans of revisions from the newest to the oldest, each longer than the one before.
// It discards a span that takes too long: that span lacks its newer changes.
func (c *Console) backward(ctx context.Context, create *etcdserverpb.WatchCreateRequest, first,
	last int64, most int) (out newestFirst, err error) {
	left, until := room(maxPageBytes), time.Now().Add(scanTime)
	for span := int64(maxChanges); last >= first; span *= 4 {
		if len(out.list) >= most || left <= 0 || out.unread {
			out.before = last
			break
		}
		create.StartRevision = max(first, last-span+1)
		start, found := create.StartRevision, newest{most: most - len(out.list), room: int(left)}
		compact, done, err := c.scanEvents(ctx, create, last, func(e *mvccpb.Event) bool {
			if e.Kv.ModRevision <= last {
				found.addVersion(versionOf(e.Kv, e.Type == mvccpb.DELETE))
			}
			return e.Kv.ModRevision <= last
		})
		if err != nil {
			return out, err
		}
		if out.unread = !done || time.Now().After(until); !done {
			continue
		}
		last = start - 1
		for _, g := range slices.Backward(found.revisions) {
			for _, v := range slices.Backward(g.changes) {
				out.list = append(out.list, v)
			}
			left.reserve(g.size)
			if g.cut {
				out.cut = g.changes[0].Mod
			}
		}
		if found.dropped > 0 {
			last = found.dropped
		}
		if out.compact = compact; compact > 0 && found.dropped == 0 {
			break
		}
	}
	out.unread = out.unread && out.before > 0
	return out, nil
}

// newest keeps the newest of the added changes, which arrive in order. It keeps whole revisions,
// the last for which there is room.
type newest struct {
	most, room int // the number of changes, and the bytes of their keys
	revisions  []oneRevision
	n, size    int
	dropped    int64 // the newest discarded revision
}

// oneRevision has the changes of one revision. It is cut if it alone is too large for an answer.
type oneRevision struct {
	changes []version
	size    int
	cut     bool
}

func (w *newest) addVersion(v version) {
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
	for len(w.revisions) > 1 &&
		(w.n-len(w.revisions[0].changes) >= w.most || w.size-w.revisions[0].size >= w.room) {
		w.n -= len(w.revisions[0].changes)
		w.size -= w.revisions[0].size
		w.dropped = w.revisions[0].changes[0].Mod
		w.revisions = w.revisions[1:]
	}
}

// difference compares a key at two revisions.
type difference struct {
	Diff string `json:"diff"`
	Cut  bool   `json:"cut"`
	// Same is set if both values have the same bytes, or neither exists.
	Same bool `json:"same"`
	// Missing is set if only one of the revisions has the key.
	Missing bool `json:"missing,omitempty"`
}

// serveDiff compares a key at two revisions.
func (c *Console) serveDiff(r *request) (any, error) {
	key, err := r.bytes("key")
	if err != nil {
		return nil, err
	}
	var values [2][]byte
	var names [2]string
	var exists [2]bool
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
		if exists[i] = len(res.Kvs) > 0; exists[i] {
			values[i] = res.Kvs[0].Value
		} else {
			names[i] += " (no such key)"
		}
	}
	d := &difference{Missing: exists[0] != exists[1]}
	if d.Same = !d.Missing && bytes.Equal(values[0], values[1]); d.Same {
		return d, nil
	}
	texts := [2]string{shownForm(values[0]), shownForm(values[1])}
	if texts[0] == texts[1] && !d.Missing {
		// A form may hide the difference, such as spaces in JSON or the last line end.
		texts = [2]string{hexForm(values[0]), hexForm(values[1])}
	}
	out := diff.Diff(names[0], []byte(texts[0]), names[1], []byte(texts[1]))
	d.Diff, d.Cut = string(out[:min(len(out), decode.MaxText)]), len(out) > decode.MaxText
	return d, nil
}

// shownForm returns the form that shows a value, as whole lines.
func shownForm(value []byte) string {
	return wholeLines(decode.Views(value[:min(len(value), maxShown)])[0].Text)
}

// hexForm returns a value in hexadecimal digits.
func hexForm(value []byte) string {
	views := decode.Views(value[:min(len(value), maxShown)])
	return wholeLines(views[len(views)-1].Text)
}

func wholeLines(s string) string {
	if s != "" && s[len(s)-1] != '\n' {
		s += "\n"
	}
	return s
}
