package server

import (
	"context"
	"errors"

	"vigil/internal/kv"
)

// Serving is closed when the member serves clients, which requires a leader.
func (m *Member) Serving() <-chan struct{} { return m.served }

// Alive reads from this member's own state. An error means that the member hangs or stops. A member
// that rejects reads because its data is corrupt is alive.
func (m *Member) Alive(ctx context.Context) error {
	ctx = kv.AsMember(ctx)
	_, err := m.replica.Range(ctx,
		&kv.RangeRequest{Key: []byte{0}, Serializable: true, CountOnly: true})
	if errors.Is(err, kv.ErrCorrupt) {
		return nil
	}
	return err
}
