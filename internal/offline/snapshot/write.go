package snapshot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"vigil/internal/kv"
	"vigil/internal/offline/snapshot/boltfile"
	"vigil/internal/state/auth"
	"vigil/internal/state/lease"
)

// Layout computes the size of a file: Add is called for all records in order, then Finish with the
// other contents.
type Layout struct {
	b *boltfile.Builder
	w records
}

// Plan is the result of a Layout, which Write needs.
type Plan struct {
	plan  boltfile.Plan
	pairs []bucketPairs
}

// Size returns the size of the file in bytes.
func (p *Plan) Size() int64 { return p.plan.Size() }

// RecordIterator yields the records of a store in order. Data is an encoded mvccpb.KeyValue with
// the key as first field; a deletion needs only the key. It is valid until the next call of Next.
type RecordIterator interface {
	Next() bool
	Rev() kv.Rev
	Tombstone() bool
	Data() []byte
	Err() error
}

// NewLayout returns an empty layout.
func NewLayout() *Layout {
	b := boltfile.NewCounter()
	return &Layout{b: b, w: begin(b)}
}

// Add adds a record. It does not keep data.
func (l *Layout) Add(rev kv.Rev, tombstone bool, data []byte) error {
	return l.w.put(rev, tombstone, data)
}

// Finish adds the other contents. It fails when ctx is done.
func (l *Layout) Finish(ctx context.Context, s *Contents) (*Plan, error) {
	pairs, err := s.listPairs()
	if err != nil {
		return nil, err
	}
	plan, err := finish(ctx, l.b, pairs)
	if err != nil {
		return nil, err
	}
	return &Plan{plan, pairs}, nil
}

// Write writes the file, with the records that were added to the layout. It ends at the first error
// of out.
func Write(out io.Writer, p *Plan, rs RecordIterator) error {
	b := boltfile.NewWriter(out, p.plan)
	w := begin(b)
	for rs.Next() {
		if err := w.put(rs.Rev(), rs.Tombstone(), rs.Data()); err != nil {
			return err
		}
	}
	if err := rs.Err(); err != nil {
		return err
	}
	_, err := finish(context.Background(), b, p.pairs)
	return err
}

// records writes records to a file.
type records struct {
	b   *boltfile.Builder
	key []byte
}

// begin begins a file with the bucket of the records: it is by far the largest, and does not depend
// on the others.
func begin(b *boltfile.Builder) records {
	_ = b.Bucket(bucketKey) // Put returns the error
	return records{b: b}
}

func (w *records) put(rev kv.Rev, tombstone bool, data []byte) error {
	w.key = appendRevision(w.key[:0], rev)
	if tombstone {
		w.key = append(w.key, tombstoneMark)
		_, end, err := leadingKey(data)
		if err != nil {
			return fmt.Errorf("snapshot: record of revision %d.%d: %w", rev.Main, rev.Sub, err)
		}
		data = data[:end]
	}
	return w.b.Put(w.key, data)
}

func finish(ctx context.Context, b *boltfile.Builder, list []bucketPairs) (boltfile.Plan, error) {
	for _, bucket := range list {
		if err := b.Bucket(bucket.name); err != nil {
			return boltfile.Plan{}, err
		}
		for _, p := range bucket.pairs {
			if err := ctx.Err(); err != nil {
				return boltfile.Plan{}, err
			}
			if err := b.Put(p.key, p.value); err != nil {
				return boltfile.Plan{}, err
			}
		}
	}
	return b.Finish()
}

// bucketPairs holds the pairs of one of the other buckets, in order.
type bucketPairs struct {
	name  string
	pairs []pair
}

type pair struct{ key, value []byte }

// listPairs returns the content of all buckets except the bucket of the records.
func (s *Contents) listPairs() ([]bucketPairs, error) {
	var list []bucketPairs
	var err error
	var at *bucketPairs
	bucket := func(name string) {
		list = append(list, bucketPairs{name: name})
		at = &list[len(list)-1]
	}
	put := func(key string, value []byte, e error) {
		at.pairs = append(at.pairs, pair{[]byte(key), value})
		if err == nil && e != nil {
			err = fmt.Errorf("snapshot: bucket %s, key %q: %w", at.name, key, e)
		}
	}

	bucket(bucketMeta)
	if s.Index > 0 {
		put(keyIndex, number(s.Index), nil)
	}
	if s.Term > 0 {
		put(keyTerm, number(s.Term), nil)
	}
	if s.Conf != nil {
		v, e := confValue(s.Conf)
		put(keyConfState, v, e)
	}
	if s.StorageVersion != "" {
		put(keyStorageVersion, []byte(s.StorageVersion), nil)
	}
	if s.Compact > 0 {
		rev := appendRevision(nil, kv.Rev{Main: s.Compact})
		put(keyScheduled, rev, nil)
		put(keyFinished, rev, nil)
	}
	bucket(bucketCluster)
	if s.ClusterVersion != "" {
		put(keyClusterVersion, []byte(s.ClusterVersion), nil)
	}
	bucket(bucketLease)
	for i := range s.Leases {
		put(string(lease.Key(s.Leases[i].ID)), appendLease(nil, &s.Leases[i]), nil)
	}
	bucket(bucketAlarm)
	for _, a := range s.Alarms {
		k, e := alarmKey(a)
		put(string(k), nil, e)
	}
	bucket(bucketMembers)
	if s.Members != nil {
		for i := range s.Members.Members() {
			m := &s.Members.Members()[i]
			v, e := memberValue(m)
			put(memberKey(m.ID), v, e)
		}
	}
	bucket(bucketRemoved)
	if s.Members != nil {
		for _, id := range s.Members.RemovedIDs() {
			put(memberKey(id), []byte("removed"), nil)
		}
	}
	users := s.Auth
	if users == nil {
		users = auth.New()
	}
	bucket(bucketAuth)
	enabled := []byte{0}
	if users.Enabled() {
		enabled[0] = 1
	}
	put(keyAuthEnabled, enabled, nil)
	put(keyAuthRevision, number(users.Revision()), nil)
	bucket(bucketUsers)
	for _, u := range users.Users() {
		v, e := userValue(&u)
		put(u.Name, v, e)
	}
	bucket(bucketRoles)
	for _, r := range users.Roles() {
		v, e := roleValue(&r)
		put(r.Name, v, e)
	}
	for _, b := range list {
		slices.SortFunc(b.pairs, func(x, y pair) int { return bytes.Compare(x.key, y.key) })
	}
	return list, err
}
