package server

import (
	"context"

	"vigil/internal/kv"
	"vigil/internal/member/compactor"
	"vigil/internal/member/replica"
)

// compactable adapts the replica to the compactor.
type compactable struct{ *replica.Replica }

// Revision implements compactor.Store.
func (c compactable) Revision() int64 { return c.Header().Revision }

// Compact implements compactor.Store.
func (c compactable) Compact(ctx context.Context, rev int64) error {
	_, err := c.Replica.Compact(kv.AsMember(ctx), &kv.CompactRequest{Revision: rev})
	return err
}

// compact runs automatic compaction until ctx ends. Only the leader compacts.
func (m *Member) compact(ctx context.Context) {
	policy, err := compactor.Parse(m.cfg.AutoCompactionMode, m.cfg.AutoCompactionRetention)
	if err != nil {
		return // Validate has refused it
	}
	id := m.replica.Header().MemberID
	compactor.Run(ctx, compactor.Config{Policy: policy,
		Store: compactable{m.replica}, Logger: m.log,
		Leading: func() bool { return m.replica.Status().Leader == id }})
}
