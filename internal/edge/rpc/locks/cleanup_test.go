package locks

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"vigil/internal/kv"
)

// hanging is a store without a quorum.
type hanging struct {
	Store
	asked chan struct{}
}

func (h hanging) Txn(ctx context.Context, _ *kv.TxnRequest) (*kv.TxnResult, error) {
	close(h.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// The end of the server does not wait for the removal of a key whose client is gone.
func TestCleanupEndsWithServer(t *testing.T) {
	running, end := context.WithCancel(t.Context())
	h := hanging{asked: make(chan struct{})}
	s := New(running, h, 24*time.Hour, slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.abandon(t.Context(), &waiter{key: []byte("k"), rev: 1})
	}()
	<-h.asked
	end()
	<-done
}
