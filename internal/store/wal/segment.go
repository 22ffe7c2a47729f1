package wal

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"vigil/internal/vfs"
)

const (
	segmentSuffix = ".wal"
	tempSuffix    = ".tmp"
)

func segmentName(id uint64) string { return fmt.Sprintf("%016x%s", id, segmentSuffix) }

// parseName returns the id in the name of a segment.
func parseName(name string) (uint64, bool) {
	s, ok := strings.CutSuffix(name, segmentSuffix)
	if !ok || len(s) != 16 {
		return 0, false
	}
	id, err := strconv.ParseUint(s, 16, 64)
	return id, err == nil && id > 0 && segmentName(id) == name
}

func segmentPath(dir string, id uint64) string { return filepath.Join(dir, segmentName(id)) }

// segment is an open file of the log: a segment, or a spare.
type segment struct {
	id   uint64
	path string
	file vfs.File

	// seed is the seed of the groups, once there is a header, and size is the size of the file. The
	// appender owns both.
	seed uint32
	size int64
	// refs counts the log and the reads in progress. The last one to release it closes the file.
	refs atomic.Int32
}

func newSegment(o *Options, id uint64, file vfs.File, size int64) *segment {
	s := &segment{id: id, path: segmentPath(o.Dir, id), file: file, size: size}
	s.refs.Store(1)
	return s
}

func (s *segment) acquire() { s.refs.Add(1) }

func (s *segment) release() error {
	if s.refs.Add(-1) == 0 {
		return s.file.Close()
	}
	return nil
}

func (s *segment) corrupt(off int64, format string, args ...any) error {
	return &CorruptError{File: s.path, Offset: off, Reason: fmt.Sprintf(format, args...)}
}
