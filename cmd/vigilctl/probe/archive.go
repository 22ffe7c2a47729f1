package probe

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// Archive is what a member says about the continuous archive.
type Archive struct {
	Archive          string       `json:"archive"`
	ID               string       `json:"archive_id,omitempty"`
	State            string       `json:"state"`
	Leader           bool         `json:"leader"`
	Appointee        string       `json:"appointee,omitempty"`
	ArchivedIndex    uint64       `json:"archived_index"`
	ArchivedRevision int64        `json:"archived_revision"`
	AppliedIndex     uint64       `json:"applied_index"`
	Revision         int64        `json:"revision"`
	LagSeconds       float64      `json:"lag_seconds"`
	LagRevisions     int64        `json:"lag_revisions"`
	HeldEntries      uint64       `json:"held_entries"`
	Base             *ArchiveBase `json:"base,omitempty"`
	Gap              *ArchiveGap  `json:"gap,omitempty"`
	FailingSeconds   float64      `json:"failing_seconds"`
	Error            string       `json:"error,omitempty"`
	Objects          uint64       `json:"objects"`
	Bytes            uint64       `json:"bytes"`
	Entries          uint64       `json:"entries"`
	Bases            uint64       `json:"bases"`
	Failures         uint64       `json:"failures"`
	Gaps             uint64       `json:"gaps"`
}

// ArchiveBase is a base state, ArchiveGap a range of entries that the archive lacks for good.
type (
	ArchiveBase struct {
		Index    uint64    `json:"index"`
		Revision int64     `json:"revision"`
		Time     time.Time `json:"time"`
		Parts    int       `json:"parts"`
		Bytes    int64     `json:"bytes"`
	}
	ArchiveGap struct {
		First uint64    `json:"first"`
		Last  uint64    `json:"last"`
		Time  time.Time `json:"time"`
	}
)

// Archive reads /debug/archive. ErrNotFound: the member has no archive.
func (m *Member) Archive(ctx context.Context) (*Archive, error) {
	a := new(Archive)
	err := m.get(ctx, "/debug/archive", func(r *http.Response) error { return json.NewDecoder(r.Body).Decode(a) })
	if err != nil {
		return nil, err
	}
	return a, nil
}
