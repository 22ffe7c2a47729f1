package archived

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"

	"vigil/internal/kv"
	"vigil/internal/offline/restore"
	"vigil/internal/state/fsm"
	"vigil/internal/store/mvcc/record"
	"vigil/internal/vfs"
)

// keysPage is how many keys of a Past are in memory at a time.
const keysPage = 256

// Key is a key of a Past.
type Key = record.KeyValue

// PastLease is a lease of a Past, in seconds.
type PastLease struct{ TTL, Left int64 }

// Past is the state of a target in a separate store, to read its keys.
type Past struct {
	Result
	fs     vfs.FS
	dir    string
	r      *restore.Rebuild
	leases map[int64]PastLease
}

// OpenPast builds the state of a target in a store below an empty directory, which Close leaves
// empty. It uses objects as Restore does.
func (a *Archive) OpenPast(ctx context.Context, t Target, fsys vfs.FS, dir string,
	progress func(what string, done, total int64)) (*Past, error) {
	p := &Past{fs: fsys}
	attempts := 0
	b, err := a.attempt(ctx, t, progress, func(b *build) (err error) {
		attempts++
		p.dir = filepath.Join(dir, fmt.Sprintf("state%d", attempts))
		if p.r, err = restore.NewRebuild(fsys, p.dir); err != nil {
			return err
		}
		if err = b.Build(p.r); err == nil {
			err = p.r.Commit()
		}
		if err != nil {
			err = errors.Join(err, p.Close())
		}
		return err
	})
	p.Damages = a.Damages()
	if err != nil {
		return p, err
	}
	p.complete(a, t, b, p.r.Applied().Index)
	return p, p.readLeases()
}

// readLeases reads the leases out of the meta records.
func (p *Past) readLeases() error {
	c, err := fsm.ReadContents(p.r.AllMeta())
	if err != nil {
		return errors.Join(err, p.Close())
	}
	p.leases = make(map[int64]PastLease, len(c.Leases))
	for _, l := range c.Leases {
		p.leases[l.ID] = PastLease{TTL: l.TTL, Left: l.Left()}
	}
	return nil
}

// Count returns the number of keys of a range, which is read as in kv.RangeRequest.
func (p *Past) Count(ctx context.Context, from, end string) (int64, error) {
	res, err := p.r.Store().Range(ctx,
		&kv.RangeRequest{Key: []byte(from), End: []byte(end), CountOnly: true})
	if err != nil {
		return 0, err
	}
	return res.Count, nil
}

// Keys yields the keys of a range in their order. An error is the last that it yields.
func (p *Past) Keys(ctx context.Context, from, end string) iter.Seq2[*Key, error] {
	return func(yield func(*Key, error) bool) {
		for more := true; more; {
			// Values are read one by one, because a page of them may be large.
			res, err := p.r.Store().Range(ctx,
				&kv.RangeRequest{Key: []byte(from), End: []byte(end), Limit: keysPage,
					KeysOnly: true, NoCount: true})
			if err != nil {
				yield(nil, err)
				return
			}
			more = res.More
			for i := range res.KVs.Len() {
				var found *Key
				var name Key
				if err = name.Decode(res.KVs.At(i)); err == nil {
					from = string(name.Key) + "\x00"
					found, err = p.Key(string(name.Key))
				}
				if !yield(found, err) || err != nil {
					return
				}
			}
		}
	}
}

// Key returns a key that Keys has yielded.
func (p *Past) Key(name string) (*Key, error) {
	b, err := p.r.Store().Get([]byte(name), 0)
	if err != nil {
		return nil, err
	}
	found := &Key{}
	if err := found.Decode(b); err != nil {
		return nil, fmt.Errorf("key %q: %w", name, err)
	}
	return found, nil
}

// Lease returns a lease; false if there was none with this id.
func (p *Past) Lease(id int64) (PastLease, bool) {
	l, ok := p.leases[id]
	return l, ok
}

// Close removes the store.
func (p *Past) Close() error {
	if p.r == nil {
		return nil
	}
	err := discard(p.r, p.fs, p.dir)
	p.r = nil
	return err
}

// discard closes a store and removes its files.
func discard(r *restore.Rebuild, fsys vfs.FS, dir string) error {
	err := r.Close()
	names, listErr := fsys.List(dir)
	err = errors.Join(err, listErr)
	for _, n := range names {
		err = errors.Join(err, fsys.Remove(filepath.Join(dir, n)))
	}
	return errors.Join(err, fsys.Remove(dir))
}
