package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"vigil/internal/store/history/format"
	"vigil/internal/store/history/segfile"
	"vigil/internal/vfs"
)

const (
	// partialSuffix ends the name of an unfinished checkpoint.
	partialSuffix = ".checkpoint.tmp"
	// checkpointAttempts bounds how often segments may be rewritten under a checkpoint before it
	// gives up. One attempt links names, which is much faster than rewriting a segment.
	checkpointAttempts = 100
)

// Checkpoint describes a checkpoint that was made.
type Checkpoint struct {
	// Applied is the position of the raft log, and Revision the newest main revision, that it
	// holds.
	Applied  Applied
	Revision int64
	// Segments is how many files it has. Bytes is their size, and Copied the part of it that takes
	// space of its own; the rest is shared with the log.
	Segments      int
	Bytes, Copied int64
}

// Checkpoint makes dir, which must not exist yet, a copy of the log as it is at some moment of the
// call. Open and package inspect read it as a log. With sub set, the segments lie in the
// subdirectory of that name. The copy is durable when Checkpoint returns nil. After an error or a
// crash, dir does not exist, unless the error reports that it is complete. A directory with the
// suffix ".checkpoint.tmp" may remain; the next attempt replaces it.
//
// Sealed segments are linked and not copied, so dir must be on the same file system as the log. The
// open one is copied from memory; the writer waits for nothing. The error wraps fs.ErrExist if dir
// exists, kv.ErrNoSpace if there is no room for it and syscall.EXDEV if it is on another file
// system. No error harms the log.
func (l *Log) Checkpoint(ctx context.Context, dir, sub string) (c Checkpoint, err error) {
	wrap := func(err error) (Checkpoint, error) {
		return Checkpoint{}, fmt.Errorf("history: checkpoint %s: %w", dir, vfs.MarkShortage(err))
	}
	if err := l.end.checkWritable(); err != nil {
		return wrap(err)
	}
	dir = filepath.Clean(dir)
	if rel, err := filepath.Rel(l.o.Dir, dir); err == nil && filepath.IsLocal(rel) {
		return wrap(fmt.Errorf("it would be inside the log's own directory %s", l.o.Dir))
	}
	l.checkpointing.Lock()
	defer l.checkpointing.Unlock()
	if err := l.end.checkWritable(); err != nil {
		return wrap(err)
	}
	switch _, err := l.o.FS.Stat(dir); {
	case err == nil:
		return wrap(fs.ErrExist)
	case !errors.Is(err, fs.ErrNotExist):
		return wrap(err)
	}
	p := partial{l: l, root: dir + partialSuffix}
	p.dir = filepath.Join(p.root, sub)
	if err := p.removeAll(); err != nil {
		return wrap(err)
	}
	c, err = p.build(ctx)
	if err == nil {
		err = p.nameResult(dir)
	}
	if err != nil {
		_ = p.removeAll() // if it fails, the suffix says that the rest is unfinished
		return wrap(err)
	}
	return c, nil
}

// partial is a checkpoint that is being made.
type partial struct {
	l         *Log
	root, dir string
}

// removeAll removes the directory if it holds a partial checkpoint and nothing else.
func (p *partial) removeAll() error {
	fsys := p.l.o.FS
	names, err := fsys.List(p.dir)
	if err == nil {
		for _, name := range names {
			if !strings.HasSuffix(name, format.SealedSuffix) {
				return fmt.Errorf("%s does not belong to a checkpoint; remove it first",
					filepath.Join(p.dir, name))
			}
			if err := fsys.Remove(filepath.Join(p.dir, name)); err != nil {
				return err
			}
		}
		err = fsys.Remove(p.dir)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		if p.dir != p.root {
			err = fsys.Remove(p.root)
		}
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// build fills the directory and makes it durable.
func (p *partial) build(ctx context.Context) (Checkpoint, error) {
	for range checkpointAttempts {
		files, v, err := p.chooseFiles(ctx)
		if err != nil {
			return Checkpoint{}, err
		}
		if err := p.l.o.FS.MkdirAll(p.dir); err != nil {
			return Checkpoint{}, err
		}
		c, ok, err := p.linkFiles(ctx, files, v)
		if err == nil && ok && !p.l.o.NoSync {
			err = p.l.o.FS.SyncDir(p.dir)
		}
		if err != nil || ok {
			return c, err
		}
		if err := p.removeAll(); err != nil {
			return Checkpoint{}, err
		}
	}
	return Checkpoint{},
		fmt.Errorf("segments were rewritten during each of %d attempts; try again",
			checkpointAttempts)
}

// chooseFiles returns a view, and the files of its segments before the open one.
//
// Files are rewritten concurrently, without the records that a compaction made superfluous. The
// view knows every compaction that its files do: a segment that a rewrite wrote is in the manifest
// only after the compaction. A segment that was rewritten since has no file, and then all are
// chosen again.
func (p *partial) chooseFiles(ctx context.Context) ([]*segfile.File, *View, error) {
	l := p.l
	for {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		v := l.cat.manifest.Load()
		var files []*segfile.File
		for _, s := range v.segs {
			if f := s.file(); f != nil {
				files = append(files, f)
			}
		}
		if len(files) == len(v.segs) {
			return files, v, nil
		}
		l.seal.order.Lock()
		err := l.seal.sealFull()
		l.seal.order.Unlock()
		if err == nil {
			err = l.end.checkWritable()
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// linkFiles links the files and copies the open segment as v shows it. It returns false if a file
// was rewritten since.
func (p *partial) linkFiles(ctx context.Context, files []*segfile.File,
	v *View) (Checkpoint, bool, error) {
	c := Checkpoint{Applied: v.applied, Revision: v.last.Main}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return c, false, err
		}
		err := p.l.o.FS.Link(f.Path(), filepath.Join(p.dir, filepath.Base(f.Path())))
		switch {
		case errors.Is(err, fs.ErrNotExist) && !p.l.cat.manifest.Load().holds(f):
			return c, false, nil
		case errors.Is(err, syscall.EXDEV):
			return c, false, fmt.Errorf("it must be on the file system of %s, where its segments can be linked: %w", p.l.o.Dir, err)
		case err != nil:
			return c, false, err
		}
		c.Segments++
		c.Bytes += f.Footer().FileSize()
	}
	n, err := p.copyOpen(ctx, v)
	if n > 0 {
		c.Segments++
	}
	c.Bytes += n
	c.Copied = n
	return c, err == nil, err
}

// holds reports whether file is the file of one of the segments of the view.
func (v *View) holds(file *segfile.File) bool {
	return slices.ContainsFunc(v.segs, func(s *segment) bool { return s.source().file == file })
}

// copyOpen writes the open segment as v shows it, as a sealed segment, so that not even its last
// batch can be mistaken for a torn one. It returns the size of the file, 0 if there is no batch to
// copy.
func (p *partial) copyOpen(ctx context.Context, v *View) (n int64, err error) {
	if v.end <= format.HeaderSize {
		return 0, nil
	}
	c, err := v.growing.Copy(v.tail, v.end)
	if err != nil {
		return 0, err
	}
	file, err := p.l.o.FS.Create(filepath.Join(p.dir, c.Name()))
	if err != nil {
		return 0, err
	}
	defer func() {
		if cerr := file.Close(); err == nil {
			err = cerr
		}
	}()
	if err := c.Write(ctx, file); err != nil {
		return 0, err
	}
	return c.Size(), p.l.dir.syncFile(file, file.Name())
}

// nameResult gives the finished checkpoint its name.
func (p *partial) nameResult(dir string) error {
	l := p.l
	err := l.o.FS.Rename(p.root, dir)
	if err != nil || l.o.NoSync {
		return err
	}
	if err = l.o.FS.SyncDir(filepath.Dir(dir)); err != nil {
		// Its name may be lost in a crash.
		if undo := l.o.FS.Rename(dir, p.root); undo != nil {
			err = fmt.Errorf("the directory is complete and keeps its name, which a crash may remove: %w", errors.Join(err, undo))
		}
	}
	return err
}
