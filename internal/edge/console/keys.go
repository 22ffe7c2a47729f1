package console

import (
	"bytes"
	"context"
	"net/http"
	"path"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vigil/internal/folders"
)

// Limits of lists of keys.
const (
	maxEntries = 200    // of one level of the tree, or of one page of a search
	maxVisited = 50_000 // keys that one search request visits
	searchTime = 2 * time.Second
	// bytes of keys times bytes of the pattern that one search request compares
	maxWork = 1 << 30
)

// maxPageBytes limits the bytes of keys in an answer: one key may be as large as a request. The
// first key is always included.
const maxPageBytes = 1 << 20

// room is how many bytes may still be added to an answer.
type room int

// reserve reserves bytes, and returns false if there is no room left.
func (r *room) reserve(n int) bool {
	if *r <= 0 {
		return false
	}
	*r -= room(n)
	return true
}

// keyView is a key without its value.
type keyView struct {
	Key     []byte `json:"key"`
	Create  int64  `json:"create"`
	Mod     int64  `json:"mod"`
	Version int64  `json:"version"`
	Lease   string `json:"lease,omitempty"`
}

func viewKey(kv *mvccpb.KeyValue) keyView {
	v := keyView{Key: kv.Key, Create: kv.CreateRevision, Mod: kv.ModRevision, Version: kv.Version}
	if kv.Lease != 0 {
		v.Lease = hexadecimal(uint64(kv.Lease))
	}
	return v
}

// entry is a line of a level of the tree: a key, or all keys with a prefix.
type entry struct {
	*keyView
	Prefix []byte `json:"prefix,omitempty"`
	Count  int64  `json:"count,omitempty"`
	// Size and Text describe the value if the request asks for them. Size is -1 if the values of
	// the page are too large to be read.
	Size *int   `json:"size,omitempty"`
	Text string `json:"text,omitempty"`
}

// page is a part of a list. After is the start of the next part, empty at the end.
type page struct {
	Revision int64   `json:"revision"` // of the store, at which all parts of a list are read
	Now      int64   `json:"now"`      // the newest revision
	Entries  []entry `json:"entries"`
	Total    int64   `json:"total"`
	After    []byte  `json:"after,omitempty"`
	Visited  int64   `json:"visited,omitempty"`
	// Sorted is set if the entries are the first of the whole range in the requested order.
	Sorted bool `json:"sorted,omitempty"`
}

// endOf returns the end of the range of all keys with a prefix.
func endOf(prefix []byte) []byte { return folders.End(prefix) }

// from returns the first key of a range in the form of the API.
func from(key []byte) []byte { return folders.From(key) }

// rangeOnce reads a part of a range. The caller uses its keys and values before it reads the next
// part: the memory of a large answer counts as in use until the context of its call ends, and a
// request of many calls must not count all of them at once.
func (c *Console) rangeOnce(ctx context.Context,
	in *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return c.kv.Range(ctx, in)
}

// ranged is rangeOnce without values.
func (c *Console) ranged(ctx context.Context, key, end []byte, rev,
	limit int64) (*etcdserverpb.RangeResponse, error) {
	return c.rangeOnce(ctx,
		&etcdserverpb.RangeRequest{Key: from(key), RangeEnd: end, Revision: rev, Limit: limit,
			KeysOnly: true})
}

// serveTree lists one level of the tree: the keys with a prefix. Keys that share a part up to the
// next separator are one line.
func (c *Console) serveTree(r *request) (any, error) {
	prefix, err := r.bytes("prefix")
	if err != nil {
		return nil, err
	}
	after, err := r.bytes("after")
	if err != nil {
		return nil, err
	}
	rev, err := r.number("rev", 0, 1<<62)
	if err != nil {
		return nil, err
	}
	separator := []byte(r.URL.Query().Get("separator"))
	all, err := c.kv.Range(r.ctx,
		&etcdserverpb.RangeRequest{Key: from(prefix), RangeEnd: endOf(prefix), Revision: rev,
			CountOnly: true})
	if err != nil {
		return nil, err
	}
	p := &page{Revision: rev, Now: all.Header.Revision, Entries: []entry{}, Total: all.Count}
	if rev == 0 {
		p.Revision = all.Header.Revision
	}
	read := func(key, end []byte, limit int64) ([]*mvccpb.KeyValue, bool, error) {
		list, err := c.ranged(r.ctx, key, end, p.Revision, limit)
		if err != nil {
			return nil, false, err
		}
		return list.Kvs, list.More, nil
	}
	left := room(maxPageBytes)
	for e, err := range folders.Walk(prefix, after, separator, (*mvccpb.KeyValue).GetKey, read) {
		switch {
		case err != nil:
			return nil, err
		case len(p.Entries) == maxEntries || !left.reserve(len(e.Key)):
			p.After = e.Key
			return p, nil
		case e.Folder == nil:
			view := viewKey(e.Item)
			p.Entries = append(p.Entries, entry{keyView: &view})
			continue
		}
		n, err := c.kv.Range(r.ctx,
			&etcdserverpb.RangeRequest{Key: e.Folder, RangeEnd: endOf(e.Folder),
				Revision: p.Revision, CountOnly: true})
		if err != nil {
			return nil, err
		}
		p.Entries = append(p.Entries, entry{Prefix: e.Folder, Count: n.Count})
	}
	return p, nil
}

// search describes a search: the range, the pattern, the order, and which parts of the values to
// return.
type search struct {
	key, end, after []byte
	rev             int64
	pattern         string
	match           func(key []byte) bool
	sort            etcdserverpb.RangeRequest_SortTarget
	order           etcdserverpb.RangeRequest_SortOrder
	values          bool
}

// targets are the columns by which keys can be sorted.
var targets = map[string]etcdserverpb.RangeRequest_SortTarget{"": etcdserverpb.RangeRequest_KEY,
	"key": etcdserverpb.RangeRequest_KEY,
	"mod": etcdserverpb.RangeRequest_MOD, "create": etcdserverpb.RangeRequest_CREATE,
	"version": etcdserverpb.RangeRequest_VERSION}

func (r *request) search() (s search, err error) {
	for name, to := range map[string]*[]byte{"key": &s.key, "end": &s.end, "after": &s.after} {
		if *to, err = r.bytes(name); err != nil {
			return s, err
		}
	}
	if s.rev, err = r.number("rev", 0, 1<<62); err != nil {
		return s, err
	}
	if len(s.end) == 0 {
		s.end = endOf(s.key)
	}
	q := r.URL.Query()
	s.pattern, s.values, s.order = q.Get("pattern"), q.Has("values"),
		etcdserverpb.RangeRequest_ASCEND
	if q.Has("descend") {
		s.order = etcdserverpb.RangeRequest_DESCEND
	}
	known := false
	if s.sort, known = targets[q.Get("sort")]; !known {
		return s, badRequest("sort=%q: want key, mod, create or version", q.Get("sort"))
	}
	s.match, err = matcher(s.pattern)
	return s, err
}

// serveSearch lists the keys of a range that match a pattern, or all of them. An order other than
// by key covers the whole range if the range has at most maxVisited keys and there is no pattern.
// Otherwise the browser sorts the page.
func (c *Console) serveSearch(r *request) (any, error) {
	s, err := r.search()
	if err != nil {
		return nil, err
	}
	all, err := c.kv.Range(r.ctx,
		&etcdserverpb.RangeRequest{Key: from(s.key), RangeEnd: s.end, Revision: s.rev,
			CountOnly: true})
	if err != nil {
		return nil, err
	}
	p := &page{Revision: s.rev, Now: all.Header.Revision, Entries: []entry{}, Total: all.Count}
	if s.rev == 0 {
		p.Revision = all.Header.Revision
	}
	byKey := s.sort == etcdserverpb.RangeRequest_KEY && s.order == etcdserverpb.RangeRequest_ASCEND
	if !byKey && s.pattern == "" && all.Count <= maxVisited {
		err = c.addSorted(r.ctx, &s, p)
	} else {
		err = c.addMatching(r.ctx, &s, p)
	}
	if err == nil && s.values {
		err = c.addValues(r.ctx, p)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// addSorted adds the first keys of a range in an order.
func (c *Console) addSorted(ctx context.Context, s *search, p *page) error {
	p.Sorted = true
	list, err := c.rangeOnce(ctx,
		&etcdserverpb.RangeRequest{Key: from(s.key), RangeEnd: s.end, Revision: p.Revision,
			KeysOnly: true, Limit: maxEntries,
			SortTarget: s.sort, SortOrder: s.order})
	if err != nil {
		return err
	}
	left := room(maxPageBytes)
	for _, kv := range list.Kvs {
		if !left.reserve(len(kv.Key)) {
			break
		}
		view := viewKey(kv)
		p.Entries = append(p.Entries, entry{keyView: &view})
	}
	return nil
}

// addMatching adds the matching keys of a range, in the order of keys.
func (c *Console) addMatching(ctx context.Context, s *search, p *page) error {
	key := s.key
	if bytes.Compare(s.after, key) > 0 {
		key = s.after
	}
	left, work := room(maxPageBytes), room(maxWork)
	for until := time.Now().Add(searchTime); ; {
		list, err := c.ranged(ctx, key, s.end, p.Revision, 1000)
		if err != nil {
			return err
		}
		for _, kv := range list.Kvs {
			if len(p.Entries) == maxEntries || !work.reserve(len(kv.Key)*(1+len(s.pattern))) {
				p.After = kv.Key
				return nil
			}
			if p.Visited++; s.match(kv.Key) {
				if !left.reserve(len(kv.Key)) {
					p.After = kv.Key
					return nil
				}
				view := viewKey(kv)
				p.Entries = append(p.Entries, entry{keyView: &view})
			}
		}
		if !list.More {
			return nil
		}
		key = append(slices.Clone(list.Kvs[len(list.Kvs)-1].Key), 0)
		if p.Visited >= maxVisited || time.Now().After(until) {
			p.After = key
			return nil
		}
	}
}

// maxValueBytes limits the values that are read for the entries of a page.
const maxValueBytes = 16 << 20

// addValues adds the sizes and beginnings of a page's values. It reads one value at a time, because
// all together could have any size.
func (c *Console) addValues(ctx context.Context, p *page) error {
	left, until := room(maxValueBytes), time.Now().Add(searchTime)
	for i := range p.Entries {
		e := &p.Entries[i]
		unknown := -1
		e.Size = &unknown
		if left <= 0 || time.Now().After(until) {
			continue
		}
		res, err := c.rangeOnce(ctx, &etcdserverpb.RangeRequest{Key: e.Key, Revision: p.Revision})
		if err != nil {
			return err
		}
		if len(res.Kvs) == 1 {
			v := versionOf(res.Kvs[0], false)
			left.reserve(v.Size)
			e.Size, e.Text = &v.Size, v.Text
		}
	}
	return nil
}

// maxPattern limits a pattern.
const maxPattern = 1000

// matcher returns a function that tests keys for a pattern. A pattern with *, ? or [ must match the
// whole key: * does not match a slash, and ** matches everything. Any other pattern must occur in
// the key.
func matcher(pattern string) (func(key []byte) bool, error) {
	switch {
	case pattern == "":
		return func([]byte) bool { return true }, nil
	case len(pattern) > maxPattern:
		return nil, badRequest("the pattern has %d bytes, at most %d", len(pattern), maxPattern)
	case !bytes.ContainsAny([]byte(pattern), "*?["):
		part := []byte(pattern)
		return func(key []byte) bool { return bytes.Contains(key, part) }, nil
	case bytes.Contains([]byte(pattern), []byte("**")):
		return globstar(pattern)
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, badRequest("the pattern %q: %v", pattern, err)
	}
	return func(key []byte) bool {
		ok, _ := path.Match(pattern, string(key)) // the pattern was checked above
		return ok
	}, nil
}

// globstar matches the literal pieces between ** one after the other.
func globstar(pattern string) (func(key []byte) bool, error) {
	parts := bytes.Split([]byte(pattern), []byte("**"))
	for _, p := range parts {
		if bytes.ContainsAny(p, "*?[") {
			return nil, badRequest("the pattern %q: ** cannot be combined with *, ? or [", pattern)
		}
	}
	first, last := parts[0], parts[len(parts)-1]
	return func(key []byte) bool {
		rest, ok := bytes.CutPrefix(key, first)
		if !ok || !bytes.HasSuffix(rest, last) {
			return false
		}
		rest = rest[:len(rest)-len(last)]
		for _, p := range parts[1 : len(parts)-1] {
			at := bytes.Index(rest, p)
			if at < 0 {
				return false
			}
			rest = rest[at+len(p):]
		}
		return true
	}, nil
}

// serveCount returns the number of keys in a range, which the browser shows before it deletes them.
func (c *Console) serveCount(r *request) (any, error) {
	key, err := r.bytes("key")
	if err != nil {
		return nil, err
	}
	end, err := r.bytes("end")
	if err != nil {
		return nil, err
	}
	if r.URL.Query().Has("prefix") {
		end = endOf(key)
	}
	n, err := c.kv.Range(r.ctx,
		&etcdserverpb.RangeRequest{Key: from(key), RangeEnd: end, CountOnly: true})
	if err != nil {
		return nil, err
	}
	return map[string]int64{"count": n.Count, "revision": n.Header.Revision}, nil
}

// conflict returns the error of a write to a key that has changed since the reader saw it.
func conflict(current *mvccpb.KeyValue) error {
	f := &failure{Status: http.StatusConflict, Code: "conflict",
		Text: "the key was changed by somebody else after it was read here; nothing was written",
		Next: "compare with the current value, and write again"}
	if current != nil {
		f.Current = valueOf(current, maxShown)
	} else {
		f.Text = "the key does not exist any more; nothing was written"
	}
	return f
}
