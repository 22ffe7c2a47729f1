package httpd

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Starting describes what a member serves before its data are open: that it is alive, and what it
// waits for.
type Starting struct {
	// Waiting and Await are as in Config.
	Waiting func() string
	Await   func(context.Context)
	// Then handles calls of the gateway once the member serves.
	Then http.Handler
	// Vars are the variables of /debug/vars.
	Vars                func() map[string]any
	CORS, HostWhitelist []string
	Logger              *slog.Logger
	// CallTimeout limits how long a call of the gateway waits.
	CallTimeout time.Duration
}

// Handlers returns the handlers of client listeners and of metrics listeners.
func (s Starting) Handlers() (client, metrics http.Handler) {
	h := &handler{Config: Config{Waiting: s.Waiting, Await: s.Await, Vars: s.Vars, CORS: s.CORS,
		HostWhitelist: s.HostWhitelist, Logger: s.Logger, CheckTimeout: s.CallTimeout}}
	h.Config = h.withDefaults()
	clients, admins := http.NewServeMux(), http.NewServeMux()
	for _, mux := range []*http.ServeMux{clients, admins} {
		h.installStarting(mux)
	}
	clients.HandleFunc("/debug/vars", onlyGet(h.vars))
	all := http.NewServeMux()
	all.Handle("/", page(clients))
	all.Handle(gatewayPrefix, h.awaitServing(s.Then))
	return boundRequests(&access{&h.Config, all}), boundRequests(page(admins))
}

// installStarting serves health, and for every other path what the member waits for.
func (h *handler) installStarting(mux *http.ServeMux) {
	mux.HandleFunc("/livez",
		onlyGet(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok\n") }))
	mux.HandleFunc("/health", onlyGet(func(w http.ResponseWriter, _ *http.Request) {
		b, err := json.Marshal(healthReply{Health: "false", Reason: h.startingText()})
		if err != nil {
			b = []byte(err.Error())
		}
		http.Error(w, string(b), http.StatusServiceUnavailable)
	}))
	mux.HandleFunc("/readyz", onlyGet(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "[-]linearizable_read failed: "+h.startingText(),
			http.StatusServiceUnavailable)
	}))
	mux.HandleFunc("/", h.refuseWaiting)
}

// startingText returns Waiting, or another text at the moment when the member begins to serve.
func (h *handler) startingText() string {
	if text := h.Waiting(); text != "" {
		return text
	}
	return "waiting for the start to end"
}

// onceServing calls next once the member serves clients. Until then it answers with what the member
// waits for.
func (h *handler) onceServing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.Waiting() == "" {
			next.ServeHTTP(w, r)
			return
		}
		h.refuseWaiting(w, r)
	})
}

// awaitServing lets calls wait until the member serves clients, as long as a call waits for a
// leader. So a program that starts a member and calls it at once gets an answer.
func (h *handler) awaitServing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h.Waiting() != "" && r.Method == http.MethodPost { // others are never calls
			ctx, cancel := context.WithTimeout(r.Context(), h.CheckTimeout)
			h.Await(ctx)
			cancel()
		}
		h.onceServing(next).ServeHTTP(w, r)
	})
}

// refuseWaiting answers with what the member waits for.
func (h *handler) refuseWaiting(w http.ResponseWriter, r *http.Request) {
	boundTime(w, r)
	w.Header().Set("Retry-After", "1")
	http.Error(w, "the member does not serve clients yet: "+h.startingText(),
		http.StatusServiceUnavailable)
}
