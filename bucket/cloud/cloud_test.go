package cloud

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"vigil/internal/bucket"
)

// TestErrorsOfGoogle: what the program makes of the errors that Google Cloud Storage documents, which the server of bucket/cloudtest
// never returns.
func TestErrorsOfGoogle(t *testing.T) {
	var status atomic.Int64
	var reason atomic.Value
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status.Load()))
		fmt.Fprintf(w, `{"error": {"code": %d, "message": "of the service", "errors": [{"reason": %q}]}}`, status.Load(), reason.Load())
	}))
	defer server.Close()
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(server.URL, "http://"))
	b, err := Open(t.Context(), "gs://archive?prefix=prod/")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	kinds := []error{bucket.ErrExists, bucket.ErrNotFound, bucket.ErrDenied, bucket.ErrLocked}
	for _, c := range []struct {
		status int64
		reason string
		want   error // nil: none of the kinds, so that it is tried again
		ops    string
	}{
		{http.StatusForbidden, "forbidden", bucket.ErrDenied, "put get list delete"},
		{http.StatusUnauthorized, "required", bucket.ErrDenied, "put get list delete"},
		{http.StatusNotFound, "notFound", bucket.ErrNotFound, "put get list delete"},
		{http.StatusPreconditionFailed, "conditionNotMet", bucket.ErrExists, "put"},
		{http.StatusForbidden, "retentionPolicyNotMet", bucket.ErrLocked, "delete"},
		{http.StatusForbidden, "retentionPolicyNotMet", bucket.ErrExists, "put"},
		{http.StatusServiceUnavailable, "backendError", nil, "put get list delete"},
		{http.StatusTooManyRequests, "rateLimitExceeded", nil, "put get list delete"},
	} {
		status.Store(c.status)
		reason.Store(c.reason)
		for op, call := range map[string]func() error{
			"put":    func() error { return b.Put(t.Context(), "a", []byte("x")) },
			"get":    func() error { _, err := b.Get(t.Context(), "a", 0); return err },
			"list":   func() error { _, err := b.List(t.Context(), "", "", 10); return err },
			"delete": func() error { return b.Delete(t.Context(), "a") },
		} {
			if !strings.Contains(c.ops, op) {
				continue
			}
			requests.Store(0)
			err := call()
			t.Logf("%d %s: %s: %v", c.status, c.reason, op, err)
			for _, k := range kinds {
				if errors.Is(err, k) != (k == c.want) {
					t.Errorf("%d %s: %s: %v, want %v", c.status, c.reason, op, err, c.want)
				}
			}
			if n := requests.Load(); err == nil || n > attempts {
				t.Errorf("%d %s: %s: %d requests, %v", c.status, c.reason, op, n, err)
			}
		}
	}
}
