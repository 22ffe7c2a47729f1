package httpd

import (
	"encoding/json"
	"net/http"
)

// JSONHandler answers GET with a value as JSON.
func JSONHandler(value func() any) http.HandlerFunc {
	return onlyGet(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(value())
	})
}
