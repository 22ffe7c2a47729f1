package server

import (
	"net/http"
	"net/http/pprof"

	"vigil/watch"
)

// withDebug puts what an operator looks at in front of a handler: the watchers, and the profiles if
// they are wanted.
func withDebug(next http.Handler, profiles bool, hub *watch.Hub) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/watch", watchersHandler(hub))
	if profiles {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	mux.Handle("/", next)
	return mux
}
