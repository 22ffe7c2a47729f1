package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// healthReply is the answer of /health.
type healthReply struct {
	Health string `json:"health"`
	Reason string `json:"reason"`
}

// health answers /health: "true" or "false", with the first reason.
func (h *handler) health(w http.ResponseWriter, r *http.Request) {
	h.extendDeadline(w, 1)
	query := r.URL.Query()
	reason := h.unhealthy(r.Context(), query["exclude"], query.Get("serializable") == "true")
	reply := healthReply{Health: "true", Reason: reason}
	if reason != "" {
		reply.Health = "false"
	}
	b, err := json.Marshal(reply)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if reason != "" {
		h.metrics.failure.Inc()
		h.Logger.Warn("/health error", "output", string(b), "status-code",
			http.StatusServiceUnavailable)
		http.Error(w, string(b), http.StatusServiceUnavailable)
		return
	}
	h.metrics.success.Inc()
	w.Write(b)
}

// unhealthy returns why the member is not healthy, "" if it is.
func (h *handler) unhealthy(ctx context.Context, exclude []string, serializable bool) string {
	for _, alarm := range h.Health.Alarms() {
		if slices.Contains(exclude, alarm) {
			continue
		}
		if alarm != "NOSPACE" && alarm != "CORRUPT" {
			alarm = "UNKNOWN"
		}
		return "ALARM " + alarm
	}
	if !serializable && h.Health.Leader() == 0 {
		if text := h.Waiting(); text != "" {
			return "RAFT NO LEADER: " + text
		}
		return "RAFT NO LEADER"
	}
	if err := h.readKey(ctx, serializable); err != nil {
		return "RANGE ERROR:" + err.Error()
	}
	return ""
}

func (h *handler) readKey(ctx context.Context, serializable bool) error {
	if text := h.Waiting(); text != "" && !serializable {
		return errors.New(text)
	}
	ctx, cancel := context.WithTimeout(ctx, h.CheckTimeout)
	defer cancel()
	return h.Health.Read(ctx, serializable)
}

// extendDeadline adds the time of n checks to the deadline of the page: with a long election
// timeout they may take longer than sending a page.
func (h *handler) extendDeadline(w http.ResponseWriter, n int) {
	end := time.Now().Add(time.Duration(n)*h.CheckTimeout + pageTimeout)
	_ = http.NewResponseController(w).SetWriteDeadline(end)
}

// check is one condition of livez or readyz.
type check struct {
	name string
	run  func(context.Context) error
}

func (h *handler) serializableRead() check {
	return check{"serializable_read",
		func(ctx context.Context) error { return h.readKey(ctx, true) }}
}

func (h *handler) linearizableRead() check {
	return check{"linearizable_read",
		func(ctx context.Context) error { return h.readKey(ctx, false) }}
}

func (h *handler) noAlarm(name, alarm string) check {
	return check{name, func(context.Context) error {
		if slices.Contains(h.Health.Alarms(), alarm) {
			return fmt.Errorf("alarm activated: %s", alarm)
		}
		return nil
	}}
}

func (h *handler) nonLearner() check {
	return check{"non_learner", func(context.Context) error {
		if h.Health.IsLearner() {
			return errors.New("not supported for learner")
		}
		return nil
	}}
}

// installChecks serves checks together at /kind, and each at /kind/name.
func (h *handler) installChecks(mux *http.ServeMux, kind string, checks ...check) {
	mux.HandleFunc("/"+kind, onlyGet(func(w http.ResponseWriter, r *http.Request) {
		exclude := r.URL.Query()["exclude"]
		missing := slices.DeleteFunc(slices.Clone(exclude), func(name string) bool {
			return name == "" ||
				slices.ContainsFunc(checks, func(c check) bool { return c.name == name })
		})
		if len(missing) > 0 {
			h.Logger.Warn("some health checks cannot be excluded", "missing-health-checks",
				strings.Join(missing, ", "))
		}
		h.runChecks(w, r, kind,
			slices.DeleteFunc(slices.Clone(checks),
				func(c check) bool { return slices.Contains(exclude, c.name) }))
	}))
	for _, c := range checks {
		mux.HandleFunc("/"+kind+"/"+c.name,
			onlyGet(func(w http.ResponseWriter,
				r *http.Request) {
				h.runChecks(w, r, kind, []check{c})
			}))
	}
}

// runChecks runs checks. It answers with all results if one failed or the client asks for them.
func (h *handler) runChecks(w http.ResponseWriter, r *http.Request, kind string, checks []check) {
	h.extendDeadline(w, len(checks))
	var report strings.Builder
	ok := true
	for _, c := range checks {
		err := c.run(r.Context())
		h.metrics.countCheck(kind, c.name, err)
		if err != nil {
			ok = false
			fmt.Fprintf(&report, "[-]%s failed: %v\n", c.name, err)
		} else {
			fmt.Fprintf(&report, "[+]%s ok\n", c.name)
		}
	}
	if !ok {
		h.Logger.Warn("Health check error", "path", r.URL.Path, "reason", report.String(),
			"status-code", http.StatusServiceUnavailable)
		http.Error(w, report.String(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.URL.Query().Has("verbose") {
		fmt.Fprint(w, report.String())
	}
	fmt.Fprint(w, "ok\n")
}
