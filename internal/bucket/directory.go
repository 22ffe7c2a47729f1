package bucket

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"vigil/internal/vfs"
)

const (
	// temporary is the prefix of the names of files under way. A crash leaves such files; they do
	// not count as objects.
	temporary = ".put-"
	// leftoverAge is the age from which such a file counts as left by a crash.
	leftoverAge = 24 * time.Hour
)

// directory is a Bucket of files. An object is written under another name, synced, and linked to
// its name, which fails if that exists. A folder is durable before there is a file in it.
type directory struct {
	fs  vfs.FS
	dir string

	mu struct {
		sync.Mutex
		// made holds directories that certainly exist.
		made map[string]bool
		// swept is the time of the last search for leftovers in each directory.
		swept map[string]time.Time
	}
}

// NewDirectory returns the bucket of a directory. If create is set, it creates a missing directory.
func NewDirectory(fsys vfs.FS, dir string, create bool) (Bucket, error) {
	d := &directory{fs: fsys, dir: filepath.Clean(dir)}
	d.mu.made, d.mu.swept = map[string]bool{}, map[string]time.Time{}
	st, err := fsys.Stat(d.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && create:
		err = d.makeDir(d.dir)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("bucket: %s: %w: there is no such directory", d.dir, ErrNotFound)
	case err == nil && !st.IsDir():
		err = fmt.Errorf("bucket: %s is not a directory", d.dir)
	}
	if err != nil {
		return nil, d.wrap("open", "", err)
	}
	return d, nil
}

// wrap returns an error of a file operation as one of this package.
func (d *directory) wrap(op, key string, err error) error {
	kind := error(nil)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		kind = ErrExists
	case errors.Is(err, fs.ErrNotExist):
		kind = ErrNotFound
	case errors.Is(err, fs.ErrPermission):
		kind = ErrDenied
	}
	what := cmp.Or(key, d.dir)
	if kind != nil {
		return fmt.Errorf("bucket: %s %s: %w: %w", op, what, kind, err)
	}
	return fmt.Errorf("bucket: %s %s: %w", op, what, err)
}

func (d *directory) path(key string) string { return filepath.Join(d.dir, filepath.FromSlash(key)) }

// makeDir creates a directory durably.
func (d *directory) makeDir(dir string) error {
	d.mu.Lock()
	made := d.mu.made[dir]
	d.mu.Unlock()
	if made {
		return nil
	}
	if dir != d.dir {
		// Do not create a directory again that has vanished, such as one of an unmounted file
		// system.
		if _, err := d.fs.Stat(d.dir); err != nil {
			return err
		}
	}
	if err := d.fs.MkdirAll(dir); err != nil {
		return err
	}
	d.mu.Lock()
	d.mu.made[dir] = true
	d.mu.Unlock()
	return nil
}

// Put implements Bucket.
func (d *directory) Put(ctx context.Context, key string, data []byte) error {
	if err := checkPut(ctx, key, len(data)); err != nil {
		return err
	}
	name := d.path(key)
	dir := filepath.Dir(name)
	if err := d.makeDir(dir); err != nil {
		return d.wrap("put", key, err)
	}
	temp := filepath.Join(dir, temporary+rand.Text())
	f, err := d.fs.Create(temp)
	if err != nil {
		return d.wrap("put", key, err)
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = d.fs.Link(temp, name)
	}
	_ = d.fs.Remove(temp) // its name is one of no object
	if err == nil || errors.Is(err, fs.ErrExist) {
		// Even if the object exists: its writer may not have synced its name yet.
		err = errors.Join(err, d.fs.SyncDir(dir))
	}
	if err == nil {
		d.sweep(ctx, dir, name)
	}
	return d.wrap("put", key, err)
}

// sweep removes the files that crashes have left in a directory, of any process, once in
// leftoverAge. Ages are by the clock of the directory: latest was written just now. Files that it
// cannot remove remain for the next time.
func (d *directory) sweep(ctx context.Context, dir, latest string) {
	d.mu.Lock()
	last, done := d.mu.swept[dir]
	done = done && time.Since(last) < leftoverAge
	if !done {
		d.mu.swept[dir] = time.Now()
	}
	d.mu.Unlock()
	if done {
		return
	}
	now, err := d.fs.Stat(latest)
	if err != nil {
		return
	}
	names, _ := d.fs.List(dir)
	for _, n := range names {
		if !strings.HasPrefix(n, temporary) || ctx.Err() != nil {
			continue
		}
		left := filepath.Join(dir, n)
		if st, err := d.fs.Stat(left); err == nil &&
			now.ModTime().Sub(st.ModTime()) >= leftoverAge {
			_ = d.fs.Remove(left)
		}
	}
}

func checkPut(ctx context.Context, key string, size int) error {
	switch {
	case !ValidKey(key):
		return fmt.Errorf("bucket: %w %q", ErrKey, key[:min(len(key), 64)])
	case size > MaxObject:
		return fmt.Errorf("bucket: put %s: %d bytes, the most is %d", key, size, MaxObject)
	}
	return ctx.Err()
}

// syncFound makes the names found in a directory durable: their writer may have died before it did
// that. It synced the content of an object before it gave it the name. A read-only directory needs
// no sync.
func (d *directory) syncFound(dir string) error {
	if err := d.fs.SyncDir(dir); !errors.Is(err, syscall.EROFS) {
		return err
	}
	return nil
}

// Get implements Bucket.
func (d *directory) Get(ctx context.Context, key string, offset int64) (io.ReadCloser, error) {
	if err := checkKey(ctx, key); err != nil {
		return nil, err
	}
	name := d.path(key)
	f, err := d.fs.Open(name)
	if err != nil {
		return nil, d.wrap("get", key, err)
	}
	size, err := f.Size()
	if err == nil {
		err = d.syncFound(filepath.Dir(name))
	}
	if err != nil {
		return nil, d.wrap("get", key, errors.Join(err, f.Close()))
	}
	r := io.NewSectionReader(f, offset, max(size-offset, 0))
	return &fileReader{ctx: ctx, r: r, file: f}, nil
}

func checkKey(ctx context.Context, key string) error {
	if !ValidKey(key) {
		return fmt.Errorf("bucket: %w %q", ErrKey, key[:min(len(key), 64)])
	}
	return ctx.Err()
}

// fileReader reads a file from an offset on until its context ends.
type fileReader struct {
	ctx  context.Context
	r    io.Reader
	file vfs.File
}

func (f *fileReader) Read(p []byte) (int, error) {
	if err := f.ctx.Err(); err != nil {
		return 0, err
	}
	return f.r.Read(p)
}

func (f *fileReader) Close() error { return f.file.Close() }

// List implements Bucket.
func (d *directory) List(ctx context.Context, prefix, after string, limit int) ([]Object, error) {
	limit = min(max(limit, 1), ListLimit)
	folder, _ := path.Split(prefix)
	if folder != "" && !ValidKey(strings.TrimSuffix(folder, "/")) {
		return nil, fmt.Errorf("bucket: %w %q", ErrKey, prefix[:min(len(prefix), 64)])
	}
	w := dirWalk{d: d, ctx: ctx, prefix: prefix, after: after, limit: limit}
	if err := w.folder(folder); err != nil {
		return nil, d.wrap("list", prefix, err)
	}
	return w.out, nil
}

// dirWalk visits the files of a directory in the order of their keys.
type dirWalk struct {
	d             *directory
	ctx           context.Context
	prefix, after string
	limit         int
	out           []Object
}

// folder visits a folder, whose name is empty or ends with a slash.
func (w *dirWalk) folder(folder string) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	names, err := w.d.fs.List(w.d.path(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !w.matches(folder + n) })
	if len(names) == 0 {
		return nil
	}
	if err := w.d.syncFound(w.d.path(folder)); err != nil {
		return err
	}
	if err := w.order(folder, names); err != nil {
		return err
	}
	for _, name := range names {
		if len(w.out) == w.limit {
			return nil
		}
		key := folder + name
		st, err := w.d.fs.Stat(w.d.path(key))
		switch {
		case errors.Is(err, fs.ErrNotExist): // deleted since
		case err != nil:
			return err
		case st.IsDir():
			if err := w.folder(key + "/"); err != nil {
				return err
			}
		case strings.HasPrefix(key, w.prefix) && key > w.after:
			w.out = append(w.out, Object{Key: key, Size: st.Size(), Modified: st.ModTime()})
		}
	}
	return nil
}

// matches reports whether an object with a key, or one in a folder of this name, may be in the
// list.
func (w *dirWalk) matches(key string) bool {
	// "0" follows "/": the keys in the folder are below key+"0".
	return ValidKey(key) && key+"0" > w.after &&
		(strings.HasPrefix(key, w.prefix) || strings.HasPrefix(w.prefix, key+"/"))
}

// order sorts the names of a folder by the keys that they stand for: a folder has its place with a
// slash at its end. That matters only if another name begins with its name.
func (w *dirWalk) order(folder string, names []string) error {
	folders := map[string]bool{}
	for i, name := range names[:max(len(names)-1, 0)] {
		if !strings.HasPrefix(names[i+1], name) {
			continue
		}
		st, err := w.d.fs.Stat(w.d.path(folder + name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		folders[name] = err == nil && st.IsDir()
	}
	if len(folders) == 0 {
		return nil
	}
	place := func(name string) string {
		if folders[name] {
			return name + "/"
		}
		return name
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(place(a), place(b)) })
	return nil
}

// Delete implements Bucket.
func (d *directory) Delete(ctx context.Context, key string) error {
	if err := checkKey(ctx, key); err != nil {
		return err
	}
	name := d.path(key)
	if err := d.fs.Remove(name); err != nil {
		return d.wrap("delete", key, err)
	}
	return d.wrap("delete", key, d.fs.SyncDir(filepath.Dir(name)))
}

// Close implements Bucket.
func (d *directory) Close() error { return nil }
