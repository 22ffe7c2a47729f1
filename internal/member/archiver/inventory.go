package archiver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"vigil/internal/bucket"
	"vigil/internal/store/archive"
)

// inventory is what an archive has, as far as a sender needs to know.
type inventory struct {
	// base is the newest base that can be read, nil for none.
	base *archive.Base
	// cover are the indexes that the archive has. What is before the bases that are looked at counts as there.
	cover coverage
	// bytes is the size of the log objects that begin after the base.
	bytes int64
	// newest are the names of the log objects that reach furthest, the furthest first.
	newest []string
}

// end returns the highest index that the archive has.
func (inv *inventory) end() uint64 {
	if inv.base == nil {
		return inv.cover.end()
	}
	return max(inv.cover.end(), inv.base.Index)
}

// newestLooked is how many of the newest log objects are looked at, should some be damaged.
const newestLooked = 4

// noteNewest notes a log object, if it is among those that reach furthest.
func (inv *inventory) noteNewest(name string, last uint64) {
	i := 0
	for ; i < len(inv.newest); i++ {
		if _, end, _ := archive.ParseLogName(inv.newest[i]); last > end {
			break
		}
	}
	if inv.newest = slices.Insert(inv.newest, i, name); len(inv.newest) > newestLooked {
		inv.newest = inv.newest[:newestLooked]
	}
}

// basesLookedAt is how many of the newest bases are looked at. A new base is made only when the archive has the entries up to the
// one before, so that no entry before the third newest is missing that could still be sent; and no log object is as long as the
// way from the fourth to the third.
const basesLookedAt = 4

// list reads the names in the bucket, and the newest manifest. What is up to the index archived counts as there without a look: 0 for
// all that the bases say nothing of.
func (s *session) list(ctx context.Context, archived uint64) (*inventory, error) {
	var bases []string
	err := s.each(ctx, archive.BasePrefix, "", func(o bucket.Object) {
		if _, _, ok := archive.ParseBaseName(o.Key); !ok {
			return
		}
		if bases = append(bases, o.Key); len(bases) > basesLookedAt {
			bases = bases[1:]
		}
	})
	if err != nil {
		return nil, err
	}
	inv := &inventory{}
	for i := len(bases) - 1; i >= 0 && inv.base == nil; i-- {
		if inv.base, err = s.readBase(ctx, bases[i]); err != nil {
			return nil, err
		}
	}
	var from, after uint64
	if inv.base != nil {
		if len(bases) == basesLookedAt {
			from, _, _ = archive.ParseBaseName(bases[0])
		}
		covered, _, _ := archive.ParseBaseName(bases[max(len(bases)-basesLookedAt+1, 0)])
		inv.cover.add(1, max(covered, archived))
		after, from = inv.base.Index, max(from, archived)
	}
	err = s.each(ctx, archive.LogPrefix, archive.LogAfter(from), func(o bucket.Object) {
		first, last, ok := archive.ParseLogName(o.Key)
		if !ok {
			return
		}
		inv.cover.add(first, last)
		inv.noteNewest(o.Key, last)
		if first > after {
			inv.bytes += o.Size
		}
	})
	return inv, err
}

// each calls visit with the objects below a prefix whose keys are above after.
func (s *session) each(ctx context.Context, prefix, after string, visit func(bucket.Object)) error {
	for {
		list, err := doValue(ctx, &s.a.guard, 0, func(ctx context.Context) ([]bucket.Object, error) {
			return s.b.List(ctx, prefix, after, bucket.ListLimit)
		})
		if err != nil {
			return fmt.Errorf("listing %s: %w", prefix, err)
		}
		if len(list) == 0 {
			return nil
		}
		for _, o := range list {
			if o.Key <= after {
				return fmt.Errorf("the list of the bucket has %q after %q", o.Key, after)
			}
			after = o.Key
			visit(o)
		}
	}
}

// readBase reads a manifest; nil if it is damaged or gone.
func (s *session) readBase(ctx context.Context, name string) (*archive.Base, error) {
	data, err := doValue(ctx, &s.a.guard, 0, func(ctx context.Context) ([]byte, error) {
		return bucket.ReadAll(ctx, s.b, name, archive.MaxJSON)
	})
	if err != nil && !errors.Is(err, bucket.ErrNotFound) && !errors.Is(err, bucket.ErrSize) {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	var base archive.Base
	if err == nil {
		base, err = archive.DecodeBase(s.id, name, data)
	}
	if err != nil {
		s.a.o.Logger.Error("a base of the archive is not used: see vigilctl archive verify", slog.String("archive", s.a.o.Address), slog.String("error", oneLine(err.Error())))
		return nil, nil
	}
	return &base, nil
}

// newestHeader reads the header of the log object that reaches furthest, of those that can be read; nil if there is none.
func (s *session) newestHeader(ctx context.Context, inv *inventory) (*archive.Header, error) {
	reader := archive.NewReader(*s.id)
	for _, name := range inv.newest {
		data, err := doValue(ctx, &s.a.guard, 0, func(ctx context.Context) ([]byte, error) {
			r, err := s.b.Get(ctx, name, 0)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return io.ReadAll(io.LimitReader(r, archive.HeaderSize))
		})
		if err != nil && !errors.Is(err, bucket.ErrNotFound) {
			return nil, fmt.Errorf("reading %s: %w", name, err)
		}
		if err == nil {
			var h archive.Header
			if h, err = reader.Header(name, data); err == nil {
				return &h, nil
			}
		}
		s.a.o.Logger.Error("an object of the archive is not used: see vigilctl archive verify", slog.String("archive", s.a.o.Address), slog.String("error", oneLine(err.Error())))
	}
	return nil, nil
}
