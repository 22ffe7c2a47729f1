package lockapi

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"vigil/internal/kv"
)

// hanging is a store without a quorum.
type hanging struct {
	KV
	asked chan struct{}
}

func (h hanging) Do(ctx context.Context, _ kv.Write) kv.Outcome {
	close(h.asked)
	<-ctx.Done()
	return kv.Outcome{Err: ctx.Err()}
}

// The end of the server does not wait for the removal of a key whose client is gone.
func TestCleanupEndsWithServer(t *testing.T) {
	running, end := context.WithCancel(t.Context())
	h := hanging{asked: make(chan struct{})}
	s := New(Options{KV: h, MaxTxnOps: 1, Cleanup: 24 * time.Hour, Running: running,
		Logger: slog.New(slog.DiscardHandler)})
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.abandon(t.Context(), &waiter{key: []byte("k"), rev: 1})
	}()
	<-h.asked
	end()
	<-done
}
