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

// names holds the names of the objects that a sender looks at.
type names struct {
	// bases are the manifests of the newest bases, the newest last.
	bases []bucket.Object
	// logs are the log objects that reach beyond the index from.
	logs []logName
	from uint64
	// newest are the log objects that reach furthest, the furthest first.
	newest []string
}

// logName is the name and size of a log object.
type logName struct {
	bucket.Object
	first, last uint64
}

// inventory is the content of an archive as far as a sender needs it.
type inventory struct {
	// base is the newest base that can be read, nil for none.
	base *archive.Base
	// cover holds the indexes that the archive has. Everything before the examined bases counts as
	// present.
	cover coverage
	// bytes is the size of the log objects that begin after the base.
	bytes int64
}

// newestLooked is the number of newest log objects to examine, in case some are damaged.
const newestLooked = 4

// noteNewest notes a log object, if it is among those that reach furthest.
func (n *names) noteNewest(name string, last uint64) {
	i := 0
	for ; i < len(n.newest); i++ {
		if _, end, _ := archive.ParseLogName(n.newest[i]); last > end {
			break
		}
	}
	if n.newest = slices.Insert(n.newest, i, name); len(n.newest) > newestLooked {
		n.newest = n.newest[:newestLooked]
	}
}

// basesLookedAt is the number of newest bases to examine. A sender makes a base only when the
// archive has the entries up to all earlier bases, apart from bases that other senders make at the
// same moment, at most one each. So with up to six senders at a time, no entry before the second of
// these bases is missing that somebody could still send; and no log object is as long as the
// distance from the first to the second.
const basesLookedAt = 8

// listNames reads the names in the bucket. It lists the log objects that reach beyond the index
// archived, or with 0 all that the bases do not cover. Nothing is sent during a request, so it
// makes both lists at once if it can.
func (s *session) listNames(ctx context.Context, archived uint64) (*names, error) {
	n := &names{from: archived}
	logs := func() error { return s.listLogs(ctx, n) }
	if archived > 0 {
		logs = startAsync(logs)
	}
	err := s.each(ctx, archive.BasePrefix, "", func(o bucket.Object) {
		if _, _, ok := archive.ParseBaseName(o.Key); !ok {
			return
		}
		if n.bases = append(n.bases, o); len(n.bases) > basesLookedAt {
			n.bases = n.bases[1:]
		}
	})
	switch {
	case archived > 0:
		return n, errors.Join(err, logs())
	case err != nil:
		return nil, err
	case len(n.bases) == basesLookedAt:
		n.from, _, _ = archive.ParseBaseName(n.bases[0].Key)
	}
	return n, logs()
}

// listLogs lists the log objects that reach beyond n.from.
func (s *session) listLogs(ctx context.Context, n *names) error {
	n.logs, n.newest = nil, nil // others may use the old ones
	return s.each(ctx, archive.LogPrefix, archive.LogAfter(n.from), func(o bucket.Object) {
		if first, last, ok := archive.ParseLogName(o.Key); ok {
			n.logs = append(n.logs, logName{o, first, last})
			n.noteNewest(o.Key, last)
		}
	})
}

// list reads the names in the bucket and the newest manifest. Everything up to the index archived
// counts as present unseen; with 0 it lists all log objects that the bases do not cover.
func (s *session) list(ctx context.Context, archived uint64) (*inventory, error) {
	n, err := s.listNames(ctx, archived)
	if err != nil {
		return nil, err
	}
	return s.readInventory(ctx, n, archived)
}

// readInventory reads the newest listed manifest and returns the archive's inventory. It lists all
// log objects if no manifest can be read.
func (s *session) readInventory(ctx context.Context, n *names,
	archived uint64) (*inventory, error) {
	inv := &inventory{}
	var err error
	for i := len(n.bases) - 1; i >= 0 && inv.base == nil; i-- {
		if inv.base, err = s.readBase(ctx, n.bases[i].Key, n.bases[i].Size); err != nil {
			return nil, err
		}
	}
	var after uint64
	if inv.base != nil {
		covered, _, _ := archive.ParseBaseName(n.bases[max(len(n.bases)-basesLookedAt+1, 0)].Key)
		inv.cover.add(1, max(covered, archived))
		after = inv.base.Index
	} else if n.from > 0 {
		n.from = 0
		if err := s.listLogs(ctx, n); err != nil {
			return nil, err
		}
	}
	for _, o := range n.logs {
		inv.cover.add(o.first, o.last)
		if o.first > after {
			inv.bytes += o.Size
		}
	}
	return inv, nil
}

// startAsync runs f in a goroutine. The returned function waits for f and returns its error.
func startAsync(f func() error) func() error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return func() error { return <-done }
}

// each calls visit with the objects below a prefix whose keys are above after.
func (s *session) each(ctx context.Context, prefix, after string, visit func(bucket.Object)) error {
	for {
		list, err := doValue(ctx, &s.a.guard, opTimeout,
			func(ctx context.Context) ([]bucket.Object, error) {
				return s.b.List(ctx, prefix, after, bucket.ListLimit)
			})
		if err != nil {
			return fmt.Errorf("listing %s: %w", prefix, err)
		}
		for _, o := range list {
			if o.Key <= after {
				return fmt.Errorf("the list of the bucket has %q after %q", o.Key, after)
			}
			after = o.Key
			visit(o)
		}
		if len(list) < bucket.ListLimit {
			return nil
		}
	}
}

// readBase reads a manifest of about size bytes; nil if it is damaged or gone.
func (s *session) readBase(ctx context.Context, name string, size int64) (*archive.Base, error) {
	limit := s.a.guard.limit(int(min(size, archive.MaxJSON)))
	data, err := doValue(ctx, &s.a.guard, limit, func(ctx context.Context) ([]byte, error) {
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
		s.a.o.Logger.Error("a base of the archive is not used: see vigilctl archive verify",
			slog.String("archive", s.a.o.Address), slog.String("error", oneLine(err.Error())))
		return nil, nil
	}
	return &base, nil
}

// newestHeader returns the header of the readable log object that reaches furthest, nil if there is
// none.
func (s *session) newestHeader(ctx context.Context, newest []string) (*archive.Header, error) {
	reader := archive.NewReader(*s.id)
	for _, name := range newest {
		data, err := doValue(ctx, &s.a.guard, s.a.guard.limit(0),
			func(ctx context.Context) ([]byte, error) {
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
		s.a.o.Logger.Error("an object of the archive is not used: see vigilctl archive verify",
			slog.String("archive", s.a.o.Address), slog.String("error", oneLine(err.Error())))
	}
	return nil, nil
}
