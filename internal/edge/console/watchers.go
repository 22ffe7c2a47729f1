package console

import (
	"cmp"
	"slices"
	"strings"

	"vigil/internal/store/watch"
)

// columns are the orders of watchers.
var columns = map[string]func(a, b *watcherView) int{
	"lag":     func(a, b *watcherView) int { return cmp.Compare(b.Lag, a.Lag) },
	"queued":  func(a, b *watcherView) int { return cmp.Compare(b.Queued, a.Queued) },
	"events":  func(a, b *watcherView) int { return cmp.Compare(b.Events, a.Events) },
	"client":  func(a, b *watcherView) int { return cmp.Compare(a.Client, b.Client) },
	"user":    func(a, b *watcherView) int { return cmp.Compare(a.User, b.User) },
	"key":     func(a, b *watcherView) int { return cmp.Compare(string(a.Key), string(b.Key)) },
	"state":   func(a, b *watcherView) int { return cmp.Compare(a.State, b.State) },
	"created": func(a, b *watcherView) int { return a.Created.Compare(b.Created) },
}

// viewWatchers returns the first watchers in an order, of those whose client, user, state or key contains a text.
func viewWatchers(st watch.Stats, order, filter string) *watchersView {
	out := &watchersView{Revision: st.Revision, Distributed: st.Matched, Streams: len(st.Streams), Watchers: []watcherView{}}
	for _, s := range st.Streams {
		for _, x := range s.Watchers {
			out.Total++
			if filter != "" && !strings.Contains(s.Client+"\n"+s.User+"\n"+string(x.State)+"\n"+string(x.Key), filter) {
				continue
			}
			v := watcherView{Stream: s.ID, ID: x.ID, Client: s.Client, User: s.User, Key: x.Key, End: x.End, State: string(x.State),
				Next: x.Next, Lag: x.Lag, Queued: x.QueuedBytes, Events: x.Events, Bytes: x.Bytes, Created: x.Created}
			for name, set := range map[string]bool{"noput": x.NoPut, "nodelete": x.NoDelete, "prev_kv": x.PrevKV, "progress_notify": x.ProgressNotify, "fragment": x.Fragment} {
				if set {
					v.Options = append(v.Options, name)
				}
			}
			slices.Sort(v.Options)
			out.Watchers = append(out.Watchers, v)
		}
	}
	by := columns[order]
	if by == nil {
		by = columns["lag"]
	}
	slices.SortStableFunc(out.Watchers, func(a, b watcherView) int { return by(&a, &b) })
	out.Matching = len(out.Watchers)
	out.Watchers = out.Watchers[:min(len(out.Watchers), maxWatchers)]
	left := room(maxPageBytes)
	for i := range out.Watchers {
		if !left.take(len(out.Watchers[i].Key) + len(out.Watchers[i].End)) {
			out.Watchers = out.Watchers[:i]
			break
		}
	}
	return out
}
