package history

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync/atomic"
	"vigil/internal/kv"
	"vigil/internal/store/history/format"
	"vigil/internal/vfs"
)

// sealed is a sealed segment's file, open for reading. Readers hold a reference while they look at
// it; releasing the last reference unmaps and closes it.
type sealed struct {
	path    string
	foot    format.Footer
	seed    uint32 // the header's checksum
	tables  []byte // what table and metas are made of
	table   format.FileTable
	metas   []byte // offsets of the meta records, 4 bytes each
	mapping vfs.Mapping
	data    []byte   // the mapping's bytes; nil if there is no mapping, then file is read
	file    vfs.File // nil if there is a mapping
	refs    atomic.Int64
}

// openSealed takes over file, whose path is path, and reads its footer. It checks everything but the
// batches, and closes the file if it fails.
func openSealed(file vfs.File, path string) (s *sealed, h format.Header, err error) {
	f := &sealed{path: path, file: file}
	f.refs.Store(1)
	if h, err = f.open(); err != nil {
		f.release()
		return nil, h, err
	}
	return f, h, nil
}

// open reads the ends of the file.
func (s *sealed) open() (h format.Header, err error) {
	file, path := s.file, s.path
	size, err := file.Size()
	if err != nil {
		return h, err
	}
	if size < format.HeaderSize+format.FooterSize {
		return h, format.Corrupt(path, 0, "a sealed segment of %d bytes is cut", size)
	}
	if h, err = readHeader(file, path); err != nil {
		return h, err
	}
	s.seed = h.Sum
	b := make([]byte, format.FooterSize)
	if err := readFull(file, path, b, size-format.FooterSize); err != nil {
		return h, err
	}
	if s.foot, err = format.DecodeFooter(b, h.Sum, size); err != nil {
		return h, format.Corrupt(path, size-format.FooterSize, "%v", err)
	}
	if want := format.SealedName(s.foot.FirstID, s.foot.LastID, s.foot.Generation); want != filepath.Base(path) || h.ID != s.foot.FirstID {
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

func (s *sealed) openTables() (err error) {
	from, n := int64(s.foot.BodyEnd), s.foot.TableSize()
	var a access
	a.begin()
	defer func() { err = a.end(recover(), err) }()
	a.src, a.borrowed = s, true
	if s.data != nil {
		s.tables = s.data[from : from+n]
	} else {
		s.tables = make([]byte, n)
		if err := readFull(s.file, s.path, s.tables, from); err != nil {
			return err
		}
	}
	if err := s.checkTables(); err != nil {
		return err
	}
	s.table, s.metas = s.foot.Tables(s.tables)
	return nil
}

// readHeader reads the header of a segment and refuses what this program cannot read.
func readHeader(file vfs.File, path string) (format.Header, error) {
	b := make([]byte, format.HeaderSize)
	if err := readFull(file, path, b, 0); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return format.Header{}, format.Corrupt(path, 0, "the file is shorter than its header")
		}
		return format.Header{}, err
	}
	h, err := format.DecodeHeader(b)
	if err != nil {
		return format.Header{}, format.Corrupt(path, 0, "%v", err)
	}
	return h, format.CheckVersion(h.Version, path)
}

// readFull fills b from off; what a file is too short for is io.ErrUnexpectedEOF.
func readFull(file vfs.File, path string, b []byte, off int64) error {
	n, err := file.ReadAt(b, off)
	switch {
	case n == len(b):
		return nil
	case err == nil || err == io.EOF:
		return fmt.Errorf("history: read %s at offset %d: %w", path, off+int64(n), io.ErrUnexpectedEOF)
	default:
		return fmt.Errorf("history: read %s at offset %d: %w", path, off, err)
	}
}

// acquire takes a reference; false if the file is closed.
func (s *sealed) acquire() bool {
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

// hold takes another reference. The caller has one already.
func (s *sealed) hold() { s.refs.Add(1) }

// release returns a reference. An error of closing the file affects no read and is ignored.
func (s *sealed) release() {
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

// holds refuses n bytes at off that do not lie in the body.
func (s *sealed) holds(off int64, n int) error {
	if off < format.HeaderSize || off+int64(n) > int64(s.foot.BodyEnd) {
		return format.Corrupt(s.path, off, "a record of %d bytes lies outside of the batches", n)
	}
	return nil
}

// read returns n bytes at off that lie in the body: those of the mapping, or scratch, grown if need
// be, filled from the file.
func (s *sealed) read(off int64, n int, scratch []byte) ([]byte, error) {
	if err := s.holds(off, n); err != nil {
		return nil, err
	}
	if s.data != nil {
		return s.data[off : off+int64(n)], nil
	}
	if cap(scratch) < n {
		scratch = make([]byte, n)
	}
	return scratch[:n], readFull(s.file, s.path, scratch[:n], off)
}

// get appends record i, which must be at rev, to dst. If its data exceed room, it returns their size as need instead.
func (s *sealed) get(i int, rev kv.Rev, room int, dst []byte) (out []byte, need int, err error) {
	off := int64(s.table.Offset(i))
	b, err := s.read(off, format.RecordHeaderSize, nil)
	if err != nil {
		return dst, 0, err
	}
	size := format.RecordSize(b)
	if err := s.holds(off, size); err != nil {
		return dst, 0, err
	}
	if need := size - format.RecordHeaderSize; need > room {
		return dst, need, nil
	}
	if b, err = s.read(off, size, nil); err != nil {
		return dst, 0, err
	}
	if s.data == nil {
		out, err = s.appendRead(b, off, rev, dst)
		return out, 0, err
	}
	// The whole record is copied and the copy checked, since the mapping may change under us.
	n := len(dst)
	dst = append(dst, b...)
	head := dst[n : n+format.RecordHeaderSize]
	if format.RecordSize(head) != len(b) || !format.CheckRecord(dst[n:]) {
		return dst[:n], 0, format.Corrupt(s.path, off, "%v", format.ErrRecordSum)
	}
	if headRev(head) != rev {
		return dst[:n], 0, format.Corrupt(s.path, off, "the record is not that of revision %d/%d", rev.Main, rev.Sub)
	}
	return append(dst[:n], dst[n+format.RecordHeaderSize:]...), 0, nil
}

// appendRead appends a record that was read from the file.
func (s *sealed) appendRead(b []byte, off int64, rev kv.Rev, dst []byte) ([]byte, error) {
	r, size, err := format.DecodeRecord(b)
	if err == nil && !format.CheckRecord(b[:size]) {
		err = format.ErrRecordSum
	}
	if err != nil {
		return dst, format.Corrupt(s.path, off, "%v", err)
	}
	if r.Rev != rev {
		return dst, format.Corrupt(s.path, off, "the record is not that of revision %d/%d", rev.Main, rev.Sub)
	}
	return append(dst, r.Data...), nil
}
