package client

import (
	"vigil/client/internal/namespace"
	"vigil/client/internal/request"
)

// Options are typed by the calls that take them, so a meaningless option does not compile.

// GetOption is an option of [Client.Get], [Client.List] and [OpGet].
type GetOption interface{ applyGet(*request.Range) }

// PutOption is an option of [Client.Put] and [OpPut].
type PutOption interface{ applyPut(*request.Put) }

// DeleteOption is an option of [Client.Delete] and [OpDelete].
type DeleteOption interface{ applyDelete(*request.Delete) }

// WatchOption is an option of [Client.Watch].
type WatchOption interface{ applyWatch(*watchSpec) }

// CmpOption is an option of conditions.
type CmpOption interface{ applyCmp(*Cmp) }

// RangeOption makes a call about several keys instead of one.
type RangeOption interface {
	GetOption
	DeleteOption
	WatchOption
	CmpOption
}

// PrevKVOption is the type of [WithPrevKV].
type PrevKVOption interface {
	PutOption
	DeleteOption
	WatchOption
}

type getOption func(*request.Range)

func (o getOption) applyGet(r *request.Range) { o(r) }

type putOption func(*request.Put)

func (o putOption) applyPut(r *request.Put) { o(r) }

type watchOption func(*watchSpec)

func (o watchOption) applyWatch(s *watchSpec) { o(s) }

// extent is a RangeOption: it returns the end of a range that starts at a key.
type extent func(key string) (end string)

func (o extent) applyGet(r *request.Range)     { r.End = o(r.Key) }
func (o extent) applyDelete(r *request.Delete) { r.End = o(r.Key) }
func (o extent) applyWatch(s *watchSpec)       { s.end = o(s.key) }
func (o extent) applyCmp(c *Cmp)               { c.c.End = o(c.c.Key) }

// WithPrefix means all keys that begin with the key, and with an empty key all keys.
func WithPrefix() RangeOption { return extent(PrefixEnd) }

// WithFromKey means the key and all keys after it.
func WithFromKey() RangeOption { return extent(func(string) string { return namespace.ToTheEnd }) }

// WithRange means the keys from the key up to end, without end.
func WithRange(end string) RangeOption { return extent(func(string) string { return end }) }

// PrefixEnd returns the end of the range of all keys that begin with prefix.
func PrefixEnd(prefix string) string { return namespace.PrefixEnd(prefix) }

// WithLimit returns at most n keys; [GetResponse.More] reports whether there are more. 0 means all.
func WithLimit(n int64) GetOption { return getOption(func(r *request.Range) { r.Limit = n }) }

// WithRevision reads the store at a revision. The error matches [ErrCompacted] if that has been
// compacted, and [ErrFutureRevision] if the store has not reached it.
func WithRevision(rev int64) GetOption {
	return getOption(func(r *request.Range) { r.Revision = rev })
}

// WithSerializable lets the member answer from its own state, without the other members: faster,
// available without a leader, and possibly outdated. The client reads from one member as long as it
// can, and as long as it does, answers do not go back in time.
func WithSerializable() GetOption {
	return getOption(func(r *request.Range) { r.Serializable = true })
}

// WithKeysOnly leaves values out.
func WithKeysOnly() GetOption { return getOption(func(r *request.Range) { r.KeysOnly = true }) }

// WithCountOnly requests only [GetResponse.Count].
func WithCountOnly() GetOption { return getOption(func(r *request.Range) { r.CountOnly = true }) }

// SortOrder is an order of keys.
type SortOrder uint8

// The orders.
const (
	SortNone SortOrder = iota
	SortAscend
	SortDescend
)

// SortTarget is the field that keys are ordered by.
type SortTarget uint8

// The targets.
const (
	SortByKey SortTarget = iota
	SortByVersion
	SortByCreateRevision
	SortByModRevision
	SortByValue
)

// WithSort orders the keys. With [WithLimit] the first ones in that order are returned.
func WithSort(by SortTarget, order SortOrder) GetOption {
	return getOption(func(r *request.Range) { r.Target, r.Order = uint8(by), uint8(order) })
}

// WithModRevisions leaves out keys last changed below least or above most; 0 means no bound. Count
// counts them.
func WithModRevisions(least, most int64) GetOption {
	return getOption(func(r *request.Range) { r.MinModRevision, r.MaxModRevision = least, most })
}

// WithCreateRevisions leaves out keys created below least or above most; 0 means no bound. Count
// counts them.
func WithCreateRevisions(least, most int64) GetOption {
	return getOption(func(r *request.Range) {
		r.MinCreateRevision,
			r.MaxCreateRevision = least, most
	})
}

// WithLease attaches the key to a lease: the key is deleted when the lease ends. Without it a put
// detaches the key from its lease.
func WithLease(id LeaseID) PutOption {
	return putOption(func(r *request.Put) { r.Lease = int64(id) })
}

// WithIgnoreValue keeps the value of the key, which must exist; the given value must be empty.
func WithIgnoreValue() PutOption { return putOption(func(r *request.Put) { r.IgnoreValue = true }) }

// WithIgnoreLease keeps the lease of the key, which must exist.
func WithIgnoreLease() PutOption { return putOption(func(r *request.Put) { r.IgnoreLease = true }) }

type prevKV struct{}

func (prevKV) applyPut(r *request.Put)       { r.PrevKV = true }
func (prevKV) applyDelete(r *request.Delete) { r.PrevKV = true }
func (prevKV) applyWatch(s *watchSpec)       { s.prevKV = true }

// WithPrevKV requests the key as it was before.
func WithPrevKV() PrevKVOption { return prevKV{} }
