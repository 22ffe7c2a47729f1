package segfile

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"
	"sync/atomic"

	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// File is the file of a sealed segment, open for reading. Readers hold a reference while they read;
// releasing the last one unmaps and closes the file.
type File struct {
	path    string
	foot    format.Footer
	seed    uint32 // the header's checksum
	tables  []byte // encoded: table and metas alias them
	table   format.FileTable
	metas   []byte // offsets of the meta records, 4 bytes each
	mapping vfs.Mapping
	data    []byte   // the mapping's bytes; nil if the file is not mapped but read
	file    vfs.File // nil if there is a mapping
	id      fs.FileInfo
	seen    seen // of tables in the mapping
	refs    atomic.Int64
}

// Open takes over file, whose path will be path, and reads its header, tables and footer. It checks
// everything but the batches, and closes the file if it fails. The caller has the first reference.
func Open(file vfs.File, path string) (*File, format.Header, error) {
	s := &File{path: path, file: file, id: vfs.Identity(file)}
	s.refs.Store(1)
	h, err := s.open()
	if err != nil {
		s.Release()
		return nil, h, err
	}
	return s, h, nil
}

// Path returns the path of the file.
func (s *File) Path() string { return s.path }

// Identity returns the identity of the file, nil if the file system has none. No other file gets it
// before the last reference is released, unless AcceptCopy has changed it.
func (s *File) Identity() fs.FileInfo { return s.id }

// AcceptCopy reports whether the file at the path is a copy of s. It reads all of the copy and
// makes it durable. Identity then returns the identity of the copy. It is for one goroutine.
func (s *File) AcceptCopy(ctx context.Context, fsys vfs.FS) bool {
	file, err := fsys.Open(s.path)
	if err != nil {
		return false
	}
	if file.Sync() != nil {
		_ = file.Close() // nothing was written to it
		return false
	}
	c, _, err := Open(file, s.path)
	if err != nil {
		return false
	}
	defer c.Release()
	if c.seed != s.seed || c.foot != s.foot || c.Check(ctx) != nil ||
		fsys.SyncDir(filepath.Dir(s.path)) != nil {
		return false
	}
	s.id = c.id
	return true
}

// Footer returns the footer, which must not be changed.
func (s *File) Footer() *format.Footer { return &s.foot }

// open reads the ends of the file.
func (s *File) open() (h format.Header, err error) {
	file, path := s.file, s.path
	size, err := file.Size()
	if err != nil {
		return h, err
	}
	if size < format.HeaderSize+format.FooterSize {
		return h, format.Corrupt(path, 0, "a sealed segment of %d bytes is cut", size)
	}
	if h, err = ReadHeader(file, path); err != nil {
		return h, err
	}
	s.seed = h.Sum
	b := make([]byte, format.FooterSize)
	if err := ReadFull(file, path, b, size-format.FooterSize); err != nil {
		return h, err
	}
	if s.foot, err = format.DecodeFooter(b, h.Sum, size); err != nil {
		return h, format.Corrupt(path, size-format.FooterSize, "%v", err)
	}
	if want := format.SealedName(s.foot.FirstID, s.foot.LastID,
		s.foot.Generation); want != filepath.Base(path) || h.ID != s.foot.FirstID {
		return h, format.Corrupt(path, 0, "the file is %s by its content", want)
	}
	if m, ok := file.(vfs.Mapper); ok {
		// A file that cannot be mapped is read instead.
		if mapping, err := m.Map(size); err == nil {
			s.mapping, s.data, s.file = mapping, mapping.Bytes(), nil
			if err := file.Close(); err != nil {
				return h, err
			}
		}
	}
	return h, s.openTables()
}

func (s *File) openTables() (err error) {
	from, n := int64(s.foot.BodyEnd), s.foot.TableSize()
	var a Access
	a.Begin()
	defer func() { err = a.End(recover(), err) }()
	a.Borrow(s)
	if s.data != nil {
		s.tables = s.data[from : from+n]
	} else {
		s.tables = make([]byte, n)
		if err := ReadFull(s.file, s.path, s.tables, from); err != nil {
			return err
		}
	}
	if err := s.CheckTables(); err != nil {
		return err
	}
	s.table, s.metas = s.foot.Tables(s.tables)
	if s.mapping != nil {
		s.table.Fence()
		s.seen.init(from, n)
	}
	return nil
}

// Acquire takes a reference; it returns false if the file is closed.
func (s *File) Acquire() bool {
	for {
		n := s.refs.Load()
		if n == 0 {
			return false
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Hold takes another reference. The caller has one already.
func (s *File) Hold() { s.refs.Add(1) }

// Release returns a reference. An error of closing the file affects no read and is ignored.
func (s *File) Release() {
	if s.refs.Add(-1) > 0 {
		return
	}
	if s.mapping != nil {
		_ = s.mapping.Close()
	}
	if s.file != nil {
		_ = s.file.Close()
	}
}

// inBody rejects n bytes at off that are not all in the body.
func (s *File) inBody(off int64, n int) error {
	if off < format.HeaderSize || off+int64(n) > int64(s.foot.BodyEnd) {
		return format.Corrupt(s.path, off, "a record of %d bytes lies outside of the batches", n)
	}
	return nil
}

// readBody returns n bytes of the body at off: from the mapping if there is one, otherwise from the
// file, in scratch, which grows if it is too small.
func (s *File) readBody(off int64, n int, scratch []byte) ([]byte, error) {
	if err := s.inBody(off, n); err != nil {
		return nil, err
	}
	if s.data != nil {
		return s.data[off : off+int64(n)], nil
	}
	if cap(scratch) < n {
		scratch = make([]byte, n)
	}
	return scratch[:n], ReadFull(s.file, s.path, scratch[:n], off)
}

// Get appends the data of record i as it is wanted. If there is no room for it, it returns the size
// of the data as need instead.
func (s *File) Get(i int, w *Want, dst []byte) (out []byte, need int, err error) {
	off := int64(s.table.Offset(i))
	b, err := s.readBody(off, format.RecordHeaderSize, nil)
	if err != nil {
		return dst, 0, err
	}
	size := format.RecordSize(b)
	if err := s.inBody(off, size); err != nil {
		return dst, 0, err
	}
	n := size - format.RecordHeaderSize
	if !w.Fits(n) {
		return dst, n, nil
	}
	if b, err = s.readBody(off, size, nil); err != nil {
		return dst, 0, err
	}
	if w.Tag == 0 {
		dst = slices.Grow(dst, size)
	}
	// All is copied, the header to the end, and the copy checked, because a mapping may change.
	out = append(w.Append(dst, b[format.RecordHeaderSize:]), b[:format.RecordHeaderSize]...)
	end := len(out) - format.RecordHeaderSize
	head := out[end:]
	if format.RecordSize(head) != size || !format.CheckParts(head, out[end-n:end]) {
		return dst, 0, format.Corrupt(s.path, off, "%v", format.ErrRecordSum)
	}
	if format.RecordRev(head) != w.Rev {
		return dst, 0, format.Corrupt(s.path, off, "the record does not have revision %d/%d",
			w.Rev.Main, w.Rev.Sub)
	}
	return out[:end], 0, nil
}
