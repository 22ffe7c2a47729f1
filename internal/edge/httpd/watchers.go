package httpd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"text/tabwriter"
	"time"

	"vigil/internal/store/watch"
)

// watcherView is a watcher in the answer of /debug/watch. Keys are quoted, because they are bytes.
type watcherView struct {
	Stream         uint64    `json:"stream"`
	Watcher        int64     `json:"watcher"`
	Client         string    `json:"client"`
	User           string    `json:"user,omitempty"`
	Key            string    `json:"key"`
	End            string    `json:"range_end,omitempty"`
	Options        []string  `json:"options,omitempty"`
	State          string    `json:"state"`
	StartRevision  int64     `json:"start_revision"`
	NextRevision   int64     `json:"next_revision"`
	Lag            int64     `json:"lag_revisions"`
	QueuedBytes    int64     `json:"queued_bytes"`
	DeliveredCount int64     `json:"delivered_events"`
	DeliveredBytes int64     `json:"delivered_bytes"`
	Created        time.Time `json:"created"`
}

// hubView is the answer of /debug/watch.
type hubView struct {
	Revision    int64         `json:"revision"`
	Distributed int64         `json:"distributed_revision"`
	Streams     int           `json:"streams"`
	Watchers    []watcherView `json:"watchers"`
}

// WatchersHandler lists all watchers with their ranges, states and lags: as a table, or as JSON with ?format=json or the Accept
// header application/json.
func WatchersHandler(stats func() watch.Stats) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		view := viewHub(stats())
		if r.URL.Query().Get("format") == "json" || r.Header.Get("Accept") == "application/json" {
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(view)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "revision %d, distributed to live watchers %d, %d streams, %d watchers\n\n",
			view.Revision, view.Distributed, view.Streams, len(view.Watchers))
		t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(t, "STREAM\tWATCHER\tCLIENT\tKEY\tRANGE END\tSTATE\tNEXT\tLAG\tQUEUED\tEVENTS\tBYTES\tOPTIONS\tAGE")
		for _, x := range view.Watchers {
			fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%v\t%v\n", x.Stream, x.Watcher, x.Client, x.Key, x.End,
				x.State, x.NextRevision, x.Lag, x.QueuedBytes, x.DeliveredCount, x.DeliveredBytes, x.Options,
				time.Since(x.Created).Truncate(time.Second))
		}
		t.Flush()
	}
}

func viewHub(st watch.Stats) hubView {
	view := hubView{Revision: st.Revision, Distributed: st.Matched, Streams: len(st.Streams), Watchers: []watcherView{}}
	for _, s := range st.Streams {
		for _, x := range s.Watchers {
			view.Watchers = append(view.Watchers, watcherView{
				Stream: s.ID, Watcher: x.ID, Client: s.Client, User: s.User,
				Key: quoted(x.Key), End: quoted(x.End), Options: watcherOptions(x), State: string(x.State),
				StartRevision: x.StartRev, NextRevision: x.Next, Lag: x.Lag, QueuedBytes: x.QueuedBytes,
				DeliveredCount: x.Events, DeliveredBytes: x.Bytes, Created: x.Created,
			})
		}
	}
	return view
}

func watcherOptions(x watch.WatcherStats) []string {
	var list []string
	for _, o := range []struct {
		set  bool
		name string
	}{
		{x.NoPut, "noput"}, {x.NoDelete, "nodelete"}, {x.PrevKV, "prev_kv"},
		{x.ProgressNotify, "progress_notify"}, {x.Fragment, "fragment"},
	} {
		if o.set {
			list = append(list, o.name)
		}
	}
	return list
}

// quoted returns bytes as a quoted text with escapes.
func quoted(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return strconv.QuoteToASCII(string(b))
}
