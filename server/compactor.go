package server

import (
	"context"

	"vigil/internal/kv"
	"vigil/internal/member/compactor"
	"vigil/internal/member/replica"
)

// compactable is the replica as a compactor sees it.
type compactable struct{ *replica.Replica }

// Revision implements compactor.Store.
func (c compactable) Revision() int64 { return c.Header().Revision }

// Compact implements compactor.Store.
func (c compactable) Compact(ctx context.Context, rev int64) error {
	_, err := c.Replica.Compact(kv.AsMember(ctx), &kv.CompactRequest{Revision: rev})
	return err
}

// compact forgets old revisions, while this member leads and if that is wanted, until ctx ends.
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
