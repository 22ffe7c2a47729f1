package server

import (
	"context"
	"errors"

	"vigil/internal/kv"
)

// Serving is closed when clients are served, which is when there is a leader.
func (m *Member) Serving() <-chan struct{} { return m.served }

// Alive reads something from this member's own state. An error says that the member is stuck, or stops; that
// it must not answer because its data are known to be wrong is none.
func (m *Member) Alive(ctx context.Context) error {
	ctx = kv.WithCredentials(ctx, &kv.Credentials{Member: true})
	_, err := m.replica.Range(ctx, &kv.RangeRequest{Key: []byte{0}, Serializable: true, CountOnly: true})
	if errors.Is(err, kv.ErrCorrupt) {
		return nil
	}
	return err
}
