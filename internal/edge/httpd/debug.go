package httpd

import (
	"encoding/json"
	"expvar"
	"fmt"
	"maps"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/net/trace"
)

// vars writes the variables of the process, as package expvar does, and the variables of the
// member. It omits the command line, which can hold a password or a token: everyone may read this
// page.
func (h *handler) vars(w http.ResponseWriter, _ *http.Request) {
	list := map[string]string{}
	expvar.Do(func(v expvar.KeyValue) {
		if v.Key != "cmdline" {
			list[v.Key] = v.Value.String()
		}
	})
	for name, v := range h.Vars() {
		b, err := json.Marshal(v)
		if err != nil {
			b, _ = json.Marshal(err.Error())
		}
		list[name] = string(b)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	before := "{\n"
	for _, name := range slices.Sorted(maps.Keys(list)) {
		fmt.Fprintf(w, "%s%q: %s", before, name, list[name])
		before = ",\n"
	}
	fmt.Fprint(w, "\n}\n")
}

func installProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	// The name of the program, without its arguments.
	mux.HandleFunc("/debug/pprof/cmdline", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, filepath.Base(os.Args[0]))
	})
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}

// installTraces serves the records of golang.org/x/net/trace.
func installTraces(mux *http.ServeMux) {
	mux.HandleFunc("/debug/requests",
		func(w http.ResponseWriter, r *http.Request) { trace.Render(w, r, true) })
	mux.HandleFunc("/debug/events",
		func(w http.ResponseWriter, r *http.Request) { trace.RenderEvents(w, r, true) })
}
