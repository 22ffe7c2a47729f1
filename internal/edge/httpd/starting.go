package httpd

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
)

// Starting is what a member serves before its data are open: that it is alive, and what it waits for.
type Starting struct {
	// Waiting is as in Config; it is not "".
	Waiting func() string
	// Vars are the variables of /debug/vars.
	Vars                func() map[string]any
	CORS, HostWhitelist []string
	Logger              *slog.Logger
}

// Handler returns the handler, for client listeners and those of metrics.
func (s Starting) Handler() http.Handler {
	h := &handler{Config: Config{Waiting: s.Waiting, Vars: s.Vars, CORS: s.CORS, HostWhitelist: s.HostWhitelist, Logger: s.Logger}}
	h.Config = h.withDefaults()
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", onlyGet(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok\n") }))
	mux.HandleFunc("/health", onlyGet(func(w http.ResponseWriter, _ *http.Request) {
		b, err := json.Marshal(healthReply{Health: "false", Reason: s.Waiting()})
		if err != nil {
			b = []byte(err.Error())
		}
		http.Error(w, string(b), http.StatusServiceUnavailable)
	}))
	mux.HandleFunc("/readyz", onlyGet(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "[-]linearizable_read failed: "+s.Waiting(), http.StatusServiceUnavailable)
	}))
	mux.HandleFunc("/debug/vars", onlyGet(h.vars))
	mux.Handle("/", h.onceServing(http.NotFoundHandler()))
	return boundRequests(&access{&h.Config, page(mux)})
}

// onceServing answers with what the member waits for until it serves clients.
func (h *handler) onceServing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := h.Waiting()
		if text == "" {
			next.ServeHTTP(w, r)
			return
		}
		bound(w, r)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the member does not serve clients yet: "+text, http.StatusServiceUnavailable)
	})
}
