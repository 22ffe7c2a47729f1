package server

import (
	"net/http"
	"net/http/pprof"
)

// withDebug puts the profiles in front of a handler, if they are wanted.
func withDebug(next http.Handler, profiles bool) http.Handler {
	if !profiles {
		return next
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.Handle("/", next)
	return mux
}
