package console

import (
	"context"
	"io"
	"net/http"
)

// follow reads a stream of the console until the context ends.
func follow(ctx context.Context, url string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return
	}
	r.Header.Set("X-Vigil-Console", "1")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
}
