package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/bucket"
	"vigil/internal/member/calls"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lineage"
	"vigil/internal/store/archive"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// Source is the member whose entries and states are archived.
type Source interface {
	// Leading returns the term in which this member leads, 0 if it does not lead.
	Leading() (term uint64)
	// Lineage returns the claims of terms and the archives of the cluster, and a position at or
	// before the state it returns. Claim claims the term in which this member leads. NoteArchive
	// notes that an archive was begun at an address. Both return after the entry is applied.
	Lineage() (s *lineage.State, applied uint64)
	Claim(ctx context.Context, term uint64) error
	NoteArchive(ctx context.Context, address string, id lineage.ID) error
	// Position returns the position after the newest commit of the store, and the newest revision
	// at that point.
	Position() (history.Applied, int64)
	// FirstIndex returns the index of the first entry in the raft log.
	FirstIndex() uint64
	// Entries returns entries from first on and at most up to last, at least one. The caller must
	// not change them.
	Entries(first, last, maxBytes uint64) ([]*raftpb.Entry, error)
	// Store returns the present store, which a snapshot may replace.
	Store() *mvcc.Store
	// Members returns the membership as of the applied position.
	Members() *cluster.State
}

// Options configure an Archiver. The zero value of the durations and sizes is their default.
type Options struct {
	ClusterID, MemberID uint64
	Source              Source
	// Calls reaches the other members; nil if there never are any.
	Calls calls.Caller
	// Open opens the bucket. Its errors must hold no secret. Without it the member has no archive,
	// and while it leads it appoints members that have one.
	Open func(context.Context) (bucket.Bucket, error)
	// Address is the bucket's address for display. Place is the whole address, under which the
	// cluster records the archives that it has begun; by default Address.
	Address, Place string
	// Recipients are the public keys to which objects are encrypted; none for no encryption.
	Recipients []string
	// Hold limits the truncation of the raft log; nil without an archive.
	Hold *Hold

	// Interval is the time between two log objects while there are entries; by default 1 s.
	Interval time.Duration
	// BaseInterval is the time, and BaseBytes the size of log objects, after which a new base is
	// made, if anything was written; by default 1 h and 1 GiB.
	BaseInterval time.Duration
	BaseBytes    int64
	// FullInterval is the age from which further bases do not list a part: its records are sent
	// again. It limits how many bases one damaged object can spoil. By default 7 days.
	FullInterval time.Duration

	// partBytes and logBytes are the sizes of objects before compression; tests have smaller ones.
	partBytes, logBytes int64

	Logger *slog.Logger
}

// Defaults of the options.
const (
	DefaultInterval     = time.Second
	DefaultMaxLagBytes  = 1 << 30
	DefaultBaseInterval = time.Hour
	DefaultBaseBytes    = 1 << 30
	DefaultFullInterval = 7 * 24 * time.Hour
)

func (o Options) withDefaults() Options {
	or(&o.Place, o.Address)
	or(&o.Interval, DefaultInterval)
	or(&o.BaseInterval, DefaultBaseInterval)
	or(&o.BaseBytes, DefaultBaseBytes)
	or(&o.FullInterval, DefaultFullInterval)
	or(&o.partBytes, archive.PartBytes)
	or(&o.logBytes, archive.LogBytes)
	if o.Hold == nil {
		o.Hold = NewHold(0)
	}
	or(&o.Logger, slog.New(slog.DiscardHandler))
	return o
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every wrong field.
func (o *Options) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("archiver: "+format, args...))
		}
	}
	require(o.ClusterID != 0 && o.MemberID != 0, "no cluster or member")
	require(o.Source != nil && (o.Hold != nil || o.Open == nil), "Source or Hold is missing")
	require(o.Interval >= 0 && o.BaseInterval >= 0 && o.BaseBytes >= 0 && o.FullInterval >= 0,
		"negative interval or size")
	if err := archive.CheckRecipients(o.Recipients); err != nil {
		errs = append(errs, fmt.Errorf("archiver: %w", err))
	}
	return errors.Join(errs...)
}
