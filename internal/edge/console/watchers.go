package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/store/watch"
)

// WatcherView is a watcher of a member.
type WatcherView struct {
	// the member's name; set by the member that collects the answers of all
	Member  string    `json:"member,omitempty"`
	Stream  uint64    `json:"stream"`
	ID      int64     `json:"id"`
	Client  string    `json:"client"`
	User    string    `json:"user,omitempty"`
	Key     []byte    `json:"key"`
	End     []byte    `json:"end,omitempty"`
	Cut     bool      `json:"cut,omitempty"` // long keys are cut off
	Options []string  `json:"options,omitempty"`
	State   string    `json:"state"`
	Next    int64     `json:"next"`
	Lag     int64     `json:"lag"`
	Queued  int64     `json:"queued"`
	Events  int64     `json:"events"`
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
}

// WatchersQuery chooses watchers: the first in the order of a column whose client, user, state or
// key contains a text. Members send it to each other as JSON, and WatchersView as the answer.
type WatchersQuery struct {
	Sort   string `json:"sort"`
	Filter string `json:"filter"`
	// Rights is the revision of users and roles that permits the reader to see the answer.
	Rights uint64 `json:"rights"`
}

// WatchersView is a sorted part of one member's watchers.
type WatchersView struct {
	Revision    int64         `json:"revision"`
	Distributed int64         `json:"distributed"`
	Streams     int           `json:"streams"`
	Total       int           `json:"total"`
	Matching    int           `json:"matching"`
	Watchers    []WatcherView `json:"watchers"`
}

// Limits of the watchers in one answer. A member's answer must fit into a call between members.
const (
	maxWatchers     = 500
	maxWatcherKey   = 2 << 10
	maxWatcherName  = 200       // bytes of a user's or client's name
	maxWatcherBytes = 256 << 10 // of keys, users and clients
	maxFilter       = 1000
	watchersTime    = sampleInterval // to ask all members
)

// columns are the orders of watchers.
var columns = map[string]func(a, b *WatcherView) int{
	"lag":     func(a, b *WatcherView) int { return cmp.Compare(b.Lag, a.Lag) },
	"queued":  func(a, b *WatcherView) int { return cmp.Compare(b.Queued, a.Queued) },
	"events":  func(a, b *WatcherView) int { return cmp.Compare(b.Events, a.Events) },
	"member":  func(a, b *WatcherView) int { return cmp.Compare(a.Member, b.Member) },
	"client":  func(a, b *WatcherView) int { return cmp.Compare(a.Client, b.Client) },
	"user":    func(a, b *WatcherView) int { return cmp.Compare(a.User, b.User) },
	"key":     func(a, b *WatcherView) int { return cmp.Compare(string(a.Key), string(b.Key)) },
	"state":   func(a, b *WatcherView) int { return cmp.Compare(a.State, b.State) },
	"created": func(a, b *WatcherView) int { return a.Created.Compare(b.Created) },
}

func sortWatchers(list []WatcherView, order string) {
	by := columns[order]
	if by == nil {
		by = columns["lag"]
	}
	slices.SortStableFunc(list, func(a, b WatcherView) int { return by(&a, &b) })
}

// ListWatchers returns a member's watchers that a query chooses.
func ListWatchers(st watch.Stats, q WatchersQuery) *WatchersView {
	out := &WatchersView{Revision: st.Revision, Distributed: st.Matched, Streams: len(st.Streams),
		Watchers: []WatcherView{}}
	for _, s := range st.Streams {
		for _, x := range s.Watchers {
			out.Total++
			if q.Filter != "" &&
				!strings.Contains(s.Client+"\n"+s.User+"\n"+string(x.State)+"\n"+
					string(x.Key), q.Filter) {
				continue
			}
			out.Watchers = append(out.Watchers,
				WatcherView{Stream: s.ID, ID: x.ID, Client: s.Client, User: s.User, Key: x.Key,
					End: x.End, State: string(x.State),
					Next: x.Next, Lag: x.Lag, Queued: x.QueuedBytes, Events: x.Events,
					Bytes:   x.Bytes,
					Created: x.Created, Options: x.Options()})
		}
	}
	sortWatchers(out.Watchers, q.Sort)
	out.Matching = len(out.Watchers)
	out.Watchers = out.Watchers[:min(len(out.Watchers), maxWatchers)]
	left := room(maxWatcherBytes)
	for i := range out.Watchers {
		w := &out.Watchers[i]
		for _, k := range []*[]byte{&w.Key, &w.End} {
			if len(*k) > maxWatcherKey {
				*k, w.Cut = (*k)[:maxWatcherKey], true
			}
		}
		w.User, w.Client = beginning(w.User), beginning(w.Client)
		// JSON may need six bytes for a character
		if !left.reserve(len(w.Key) + len(w.End) + 6*(len(w.User)+len(w.Client))) {
			out.Watchers = out.Watchers[:i]
			break
		}
	}
	return out
}

// beginning returns a name, cut off if it is too long.
func beginning(name string) string {
	if len(name) > maxWatcherName {
		return name[:maxWatcherName] + "…"
	}
	return name
}

// maxWatchersAnswer limits another member's answer.
const maxWatchersAnswer = 1 << 20

// DecodeWatchers decodes another member's watchers.
func DecodeWatchers(b []byte) (*WatchersView, error) {
	if len(b) > maxWatchersAnswer {
		return nil, fmt.Errorf("watchers in %d bytes, at most %d", len(b), maxWatchersAnswer)
	}
	v := new(WatchersView)
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("watchers: %w", err)
	}
	return v, nil
}

// allWatchers is a part of the watchers of all members.
type allWatchers struct {
	Members  []watchingMember `json:"members"`
	Total    int              `json:"total"`
	Matching int              `json:"matching"`
	Streams  int              `json:"streams"`
	Watchers []WatcherView    `json:"watchers"`
}

// watchingMember is how far a member has distributed events, or the reason why its watchers are
// unknown.
type watchingMember struct {
	Name        string `json:"name"`
	Revision    int64  `json:"revision"`
	Distributed int64  `json:"distributed"`
	Watchers    int    `json:"watchers"`
	Error       string `json:"error,omitempty"`
}

// serveWatchers lists the watchers of one member or all, those with the largest lag first, or
// ordered by another column.
func (c *Console) serveWatchers(r *request) (any, error) {
	if err := c.adminOnly(r,
		"the watchers of all users are shown to users with the role root only"); err != nil {
		return nil, err
	}
	p := r.URL.Query()
	q := WatchersQuery{Sort: p.Get("sort"), Filter: p.Get("filter")}
	if len(q.Filter) > maxFilter {
		return nil, badRequest("the filter has %d bytes, at most %d", len(q.Filter), maxFilter)
	}
	list, err := c.cluster.MemberList(r.ctx, &etcdserverpb.MemberListRequest{Linearizable: false})
	if err != nil {
		return nil, err
	}
	return c.watchersOf(r.ctx, list.Members, p.Get("member"), q), nil
}

// byName orders members for lists.
func byName(a, b *etcdserverpb.Member) int { return cmp.Compare(a.Name, b.Name) }

// watchersOf asks all members concurrently, or only the one with a name.
func (c *Console) watchersOf(ctx context.Context, members []*etcdserverpb.Member, only string,
	q WatchersQuery) *allWatchers {
	ctx, cancel := context.WithTimeout(ctx, watchersTime)
	defer cancel()
	members = slices.DeleteFunc(slices.Clone(members),
		func(m *etcdserverpb.Member) bool { return only != "" && m.Name != only })
	slices.SortFunc(members, byName)
	views, errs := make([]*WatchersView, len(members)), make([]error, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { views[i], errs[i] = c.Watchers(ctx, m.ID, q) })
	}
	all.Wait()
	out := &allWatchers{Members: []watchingMember{}, Watchers: []WatcherView{}}
	for i, m := range members {
		x := watchingMember{Name: cmp.Or(m.Name, hexadecimal(m.ID))}
		if errs[i] != nil {
			x.Error = unanswered(errs[i]).Error()
		} else {
			v := views[i]
			x.Revision, x.Distributed, x.Watchers = v.Revision, v.Distributed, v.Total
			out.Total += v.Total
			out.Matching += v.Matching
			out.Streams += v.Streams
			for j := range v.Watchers {
				v.Watchers[j].Member = x.Name
			}
			out.Watchers = append(out.Watchers, v.Watchers...)
		}
		out.Members = append(out.Members, x)
	}
	sortWatchers(out.Watchers, q.Sort)
	out.Watchers = out.Watchers[:min(len(out.Watchers), maxWatchers)]
	return out
}
