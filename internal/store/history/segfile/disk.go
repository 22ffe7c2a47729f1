package segfile

import (
	"context"

	"vigil/internal/store/pace"
	"vigil/internal/vfs"
)

// diskWindow is how many bytes are read at once.
const diskWindow = 256 << 10

// DiskReader checks files as they are on the disk, at a limited rate. It reads through files of its
// own and drops the pages that the operating system cached for them, except pages that readers have
// mapped. It is used by one goroutine.
type DiskReader struct {
	fsys vfs.FS
	rate pace.Rate
}

// NewDiskReader returns a DiskReader that reads at most that many bytes a second, which must be
// above 0.
func NewDiskReader(fsys vfs.FS, bytesPerSecond int64) DiskReader {
	return DiskReader{fsys: fsys, rate: pace.Rate{BytesPerSecond: bytesPerSecond}}
}

// Check opens and checks the file at path and returns how many bytes were read. Its errors are the
// errors of opening the file, of Open and of File.Check.
func (d *DiskReader) Check(ctx context.Context, path string) (read int64, err error) {
	file, err := d.fsys.Open(path)
	if err != nil {
		return 0, err
	}
	r := &diskFile{File: file, d: d, ctx: ctx}
	r.dropCache(0, 0)
	f, _, err := Open(r, path)
	if err == nil {
		err = f.Check(ctx)
		f.Release()
	}
	return r.read, err
}

// diskFile reads a file in windows of diskWindow bytes, at the rate of its DiskReader. Map is
// refused, so that every byte comes from the disk.
type diskFile struct {
	vfs.File
	d     *DiskReader
	ctx   context.Context
	buf   []byte
	start int64
	read  int64
}

// ReadAt serves small reads from the piece around them, which it reads first if it has another one.
func (r *diskFile) ReadAt(b []byte, off int64) (int, error) {
	if n := int64(len(b)); n <= diskWindow {
		if off < r.start || off+n > r.start+int64(len(r.buf)) {
			r.readWindow(off)
		}
		if from := off - r.start; from >= 0 && from+n <= int64(len(r.buf)) {
			return copy(b, r.buf[from:]), nil
		}
	}
	// Large reads, reads at the end of the file and reads that failed are done separately, and have
	// their own error.
	n, err := r.File.ReadAt(b, off)
	r.payFor(off, n)
	if cerr := r.ctx.Err(); cerr != nil {
		return n, cerr
	}
	return n, err
}

// readWindow reads the piece that begins at off.
func (r *diskFile) readWindow(off int64) {
	if r.buf == nil {
		r.buf = make([]byte, diskWindow)
	}
	n, _ := r.File.ReadAt(r.buf[:diskWindow], off) // ReadAt reads missing bytes separately
	r.buf, r.start = r.buf[:n], off
	r.payFor(off, n)
}

// payFor drops n bytes at off from the cache and pays for them.
func (r *diskFile) payFor(off int64, n int) {
	r.read += int64(n)
	r.dropCache(off, int64(n))
	_ = r.d.rate.Wait(r.ctx, n) // the caller looks at the context
}

func (r *diskFile) dropCache(off, n int64) {
	if c, ok := r.File.(vfs.CacheDropper); ok {
		_ = c.DropCache(off, n) // a hint
	}
}
