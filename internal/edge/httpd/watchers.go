package httpd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"text/tabwriter"
	"time"

	"vigil/internal/debugpage"
	"vigil/internal/store/watch"
)

// WatchersHandler lists all watchers with their ranges, states and lags: as a table, or as JSON
// with ?format=json or the Accept header application/json.
func WatchersHandler(stats func() watch.Stats) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		view := watchersPage(stats())
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
			fmt.Fprintf(t, "%d\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%v\t%v\n", x.Stream,
				x.Watcher, x.Client, x.Key, x.End,
				x.State, x.NextRevision, x.Lag, x.QueuedBytes, x.DeliveredCount,
				x.DeliveredBytes, x.Options,
				time.Since(x.Created).Truncate(time.Second))
		}
		t.Flush()
	}
}

func watchersPage(st watch.Stats) debugpage.Watchers {
	view := debugpage.Watchers{Revision: st.Revision, Distributed: st.Matched,
		Streams: len(st.Streams), Watchers: []debugpage.Watcher{}}
	for _, s := range st.Streams {
		for _, x := range s.Watchers {
			view.Watchers = append(view.Watchers, debugpage.Watcher{
				Stream: s.ID, Watcher: x.ID, Client: s.Client, User: s.User,
				Key: quoted(x.Key), End: quoted(x.End), Options: x.Options(),
				State:         string(x.State),
				StartRevision: x.StartRev, NextRevision: x.Next, Lag: x.Lag,
				QueuedBytes:    x.QueuedBytes,
				DeliveredCount: x.Events, DeliveredBytes: x.Bytes, Created: x.Created,
			})
		}
	}
	return view
}

// quoted returns bytes as a quoted text with escapes.
func quoted(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	return strconv.QuoteToASCII(string(b))
}
