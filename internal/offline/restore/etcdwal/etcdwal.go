// Package etcdwal reads the raft log of a stopped etcd member: the entries after an index. Its one
// purpose is to complete a database with the entries that it does not contain; it reads nothing
// else of the log.
//
// A log is a directory with a sequence of files. A file is a sequence of frames, each a length, a
// record and padding; the checksums of all records of the log are chained.
// internal/offline/snapshot/DESIGN.md describes the bytes.
//
// # Invariants
//
//  1. Nothing is written or locked.
//  2. An entry is returned only if its record and all records before it in its file have correct
//     checksums, and if it follows the entry before it.
//  3. An incomplete record that a crash has left at the end of the last file is ignored, if the
//     file proves it: see tail.go. Any other damage is an error with the file and the offset.
package etcdwal

import (
	"bufio"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/vfs"
)

// The types of records.
const (
	typeMetadata = 1 + iota
	typeEntry
	typeState
	typeCRC
	typeSnapshot
)

const (
	frameSize = 8
	// maxRecord is the limit for a record. Requests of etcd are far smaller.
	maxRecord = 1 << 28
	// maxBytes is the limit for the entries in memory. A member writes its database ten times a
	// second.
	maxBytes = 1 << 30
)

// ErrCorrupt is wrapped by every error about the content of a log.
var ErrCorrupt = errors.New("damaged raft log")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Log is the result of Read.
type Log struct {
	// Entries are consecutive and begin after the given index.
	Entries []*raftpb.Entry
	// Torn is the number of bytes of an incomplete record at the end.
	Torn int64
	// LastTerm and LastIndex are the position of the last entry, or of an accepted snapshot that
	// replaces it. They are 0 if the log has neither.
	LastTerm, LastIndex uint64
	// ClusterID is the cluster of the member.
	ClusterID uint64
}

// reader reads a log.
type reader struct {
	// snapshots: only the indexes of snapshots and the commit index are read, not entries.
	snapshots bool
	noted     []snapshot
	committed uint64
	last      uint64 // the index of the last entry

	after uint64
	log   Log
	bytes int
	// first is the index of the first entry of the files that were read, 0 before there is one.
	first uint64
	crc   uint32
}

// snapshot is a snapshot of which the log has a record. It is part of the state once it is
// committed.
type snapshot struct {
	index, term uint64
	received    bool // otherwise the member has created it itself
}

// Accepted returns the index of the newest snapshot that the member has received and accepted, 0 if
// it is not above after. A database with a lower index is old: the snapshot was to replace it.
func Accepted(fsys vfs.FS, dir string, after uint64) (uint64, error) {
	r := &reader{snapshots: true, after: after}
	if _, err := r.readFiles(fsys, dir); err != nil {
		return 0, err
	}
	newest := uint64(0)
	for _, s := range r.noted {
		if s.received && s.index > after && s.index <= r.committed {
			newest = max(newest, s.index)
		}
	}
	return newest, nil
}

// readFiles reads the files that may contain entries after the index.
func (r *reader) readFiles(fsys vfs.FS, dir string) (*reader, error) {
	files, err := choose(fsys, dir, r.after)
	for i, name := range files {
		if err == nil {
			err = r.readFile(fsys, filepath.Join(dir, name), i == 0, i == len(files)-1)
		}
	}
	return r, err
}

// Read reads the entries after an index. It is an error if the log begins later.
func Read(fsys vfs.FS, dir string, after uint64) (*Log, error) {
	r, err := (&reader{after: after}).readFiles(fsys, dir)
	if err != nil {
		return nil, err
	}
	if r.first > after+1 {
		return nil, fmt.Errorf("%w: %s: it begins at index %d and the database ends at %d: the entries in between are missing", ErrCorrupt, dir, r.first, after)
	}
	for _, s := range r.noted {
		if s.index >= r.log.LastIndex && s.index <= r.committed {
			r.log.LastTerm, r.log.LastIndex = s.term, s.index
		}
	}
	return &r.log, nil
}

// choose returns the files that may contain entries after an index, in order.
func choose(fsys vfs.FS, dir string, after uint64) ([]string, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, err
	}
	var files []string
	var next uint64
	for _, name := range names {
		var seq, index uint64
		if n, err := fmt.Sscanf(name, "%016x-%016x.wal", &seq, &index); n != 2 || err != nil ||
			name != fmt.Sprintf("%016x-%016x.wal", seq, index) {
			continue // a file that is preallocated or was moved aside
		}
		switch {
		case index <= after, index == after+1 && len(files) == 0: // it, or the file before it, has the last entry
			files = files[:0]
		case len(files) == 0:
			return nil, fmt.Errorf("%w: %s: the first file begins at index %d and the database ends at %d: the entries in between are missing", ErrCorrupt, dir, index, after)
		case seq != next:
			return nil, fmt.Errorf("%w: %s: the file before %s is missing", ErrCorrupt, dir, name)
		}
		files, next = append(files, name), seq+1
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: there is no file of it in %s", ErrCorrupt, dir)
	}
	return files, nil
}

// readFile reads one file. The chain of checksums begins with the value in the first file.
func (r *reader) readFile(fsys vfs.FS, path string, first, last bool) error {
	f, err := fsys.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return err
	}
	in := bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 1<<20)
	off := int64(0)
	for {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("%w: %s: offset %d: %s: if the etcd member starts, let it repair its log and take a snapshot with etcdctl snapshot save; otherwise restore from another member",
				ErrCorrupt, path, off, fmt.Sprintf(format, args...))
		}
		b, n, err := frame(in, size-off)
		if err != nil && err != errFrame {
			return fmt.Errorf("%s: offset %d: %w", path, off, err)
		}
		if n == 0 && err == nil {
			if off == 0 {
				return bad("it has no record")
			}
			empty, err := empty(in)
			if err == nil && !empty {
				err = bad("bytes follow the end of the records")
			}
			return err
		}
		if err == nil {
			err = r.processRecord(b, first && off == 0, off == 0)
		}
		if err == nil {
			off += n
			continue
		}
		if last && off > 0 {
			proven, rerr := torn(f, in, off, size)
			if rerr != nil {
				return fmt.Errorf("%s: offset %d: %w", path, off, rerr)
			}
			if proven {
				r.log.Torn = size - off
				return nil
			}
		}
		return bad("%v", err)
	}
}

// processRecord processes a record. The first record of a file contains the checksum at its
// beginning, which is trusted in the first file.
func (r *reader) processRecord(b []byte, believe, begins bool) error {
	typ, sum, data, err := parse(b)
	if err != nil {
		return err
	}
	if begins && typ != typeCRC {
		return errors.New("a file does not begin with a checksum")
	}
	if typ == typeCRC {
		if !believe && sum != r.crc {
			return errors.New("it does not follow the file before it")
		}
		r.crc = sum
		return nil
	}
	crc := crc32.Update(r.crc, castagnoli, data)
	if crc != sum {
		return fmt.Errorf("checksum %08x of a record, which says %08x", crc, sum)
	}
	r.crc = crc
	switch typ {
	case typeEntry:
		var e raftpb.Entry
		if err := proto.Unmarshal(data, &e); err != nil {
			return err
		}
		r.last, r.log.LastTerm, r.log.LastIndex = e.GetIndex(), e.GetTerm(), e.GetIndex()
		if r.snapshots {
			return nil
		}
		return r.addEntry(&e, len(data))
	case typeState:
		var st raftpb.HardState
		if err := proto.Unmarshal(data, &st); err != nil {
			return err
		}
		r.committed = st.GetCommit()
		return nil
	case typeSnapshot:
		x, err := numbers(data, snapshotIndex, snapshotTerm)
		r.noted = append(r.noted, snapshot{x[0], x[1], x[0] > r.last})
		return err
	case typeMetadata:
		x, err := numbers(data, metadataCluster)
		r.log.ClusterID = x[0]
		return err
	}
	return fmt.Errorf("a record of the unknown type %d", typ)
}

// addEntry adds an entry. It replaces an earlier entry of the same index, and all entries after
// that.
func (r *reader) addEntry(e *raftpb.Entry, size int) error {
	index := e.GetIndex()
	if r.first == 0 || index < r.first {
		r.first = index
	}
	if index <= r.after {
		r.log.Entries = r.log.Entries[:0]
		return nil
	}
	at := index - r.after - 1
	if have := uint64(len(r.log.Entries)); at > have && (have > 0 || r.first <= r.after) {
		return fmt.Errorf("entry %d follows entry %d", index, r.after+have)
	} else if at > have {
		return nil // Read says that the log begins too late
	}
	if r.bytes += size; r.bytes > maxBytes {
		return fmt.Errorf("more than %d bytes of entries are not in the database", maxBytes)
	}
	r.log.Entries = append(r.log.Entries[:at], e)
	return nil
}
