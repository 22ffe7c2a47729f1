package console

import (
	"net/http"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

func contains(text, part string) bool { return strings.Contains(text, part) }

// tailLine is a line of a tail.
type tailLine struct {
	Revision int64     `json:"revision"`
	Created  bool      `json:"created,omitempty"`
	Events   []version `json:"events,omitempty"`
}

// maxTailEvents limits the events of one line.
const maxTailEvents = 500

// serveTail streams the changes of the keys with a prefix, from a revision on. A reader that is too slow lags, like any watcher.
func (c *Console) serveTail(r *request, out *lines) error {
	prefix, err := r.bytes("prefix")
	if err != nil {
		return err
	}
	rev, err := r.number("rev", 0, 1<<62)
	if err != nil {
		return err
	}
	st, err := c.watch.Watch(r.ctx)
	if err != nil {
		return err
	}
	create := &etcdserverpb.WatchCreateRequest{Key: from(prefix), RangeEnd: endOf(prefix), StartRevision: rev, ProgressNotify: true, Fragment: true}
	if err := st.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: create}}); err != nil {
		return err
	}
	for {
		res, err := st.Recv()
		if err != nil {
			return err
		}
		if res.Canceled {
			return canceled(res)
		}
		line := tailLine{Revision: res.Header.Revision, Created: res.Created}
		for i, e := range res.Events {
			v := versionOf(e.Kv, e.Type == mvccpb.DELETE)
			v.To = time.Now().UnixMilli()
			line.Events = append(line.Events, v)
			if len(line.Events) == maxTailEvents && i+1 < len(res.Events) {
				if err := out.send(line); err != nil {
					return err
				}
				line.Events, line.Created = nil, false
			}
		}
		if err := out.send(line); err != nil {
			return err
		}
	}
}

// watcherView is a watcher of this member.
type watcherView struct {
	Stream  uint64    `json:"stream"`
	ID      int64     `json:"id"`
	Client  string    `json:"client"`
	User    string    `json:"user,omitempty"`
	Key     []byte    `json:"key"`
	End     []byte    `json:"end,omitempty"`
	Options []string  `json:"options,omitempty"`
	State   string    `json:"state"`
	Next    int64     `json:"next"`
	Lag     int64     `json:"lag"`
	Queued  int64     `json:"queued"`
	Events  int64     `json:"events"`
	Bytes   int64     `json:"bytes"`
	Created time.Time `json:"created"`
}

// watchersView is a part of the watchers, sorted.
type watchersView struct {
	Revision    int64         `json:"revision"`
	Distributed int64         `json:"distributed"`
	Streams     int           `json:"streams"`
	Total       int           `json:"total"`
	Matching    int           `json:"matching"`
	Watchers    []watcherView `json:"watchers"`
}

// maxWatchers limits the watchers in one answer.
const maxWatchers = 500

// serveWatchers lists the watchers of this member, those with the largest lag first, or by another column.
func (c *Console) serveWatchers(r *request) (any, error) {
	if err := c.requireAdmin(r); err != nil {
		return nil, &failure{Status: http.StatusForbidden, Code: "denied", Text: "the watchers of all users are shown to users with the role root only: " + err.Error()}
	}
	q := r.URL.Query()
	return viewWatchers(c.Watchers(), q.Get("sort"), q.Get("filter")), nil
}
