package datadir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"regexp"
	"slices"

	"vigil/internal/store/history"
	"vigil/internal/store/history/inspect"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// The names in a data directory.
const (
	LockName    = "LOCK"
	WALName     = "wal"
	HistoryName = "history"
)

// SnapshotName returns the name of a received snapshot that is complete, next to the store: a store
// at a position. It replaces the store if the raft log begins at that position.
func SnapshotName(store string, term, index uint64) string {
	return fmt.Sprintf("%s.snapshot-%016x-%016x", store, term, index)
}

// The kinds of directories.
const (
	KindDataDir    = "data directory"
	KindCheckpoint = "checkpoint"
	KindHistory    = "history"
	KindWAL        = "wal"
)

// ErrNotDataDir is the error of a directory that is not one of the known kinds.
var ErrNotDataDir = errors.New("not a data directory")

// Options select what to check.
type Options struct {
	// FS is the file system, which is only read.
	FS vfs.FS
	// Dir is a data directory or a checkpoint, or the history or wal directory of one.
	Dir string
	// WALDir is the directory of the raft log, if it is not in Dir.
	WALDir string
	// Live is set if a member has the directory open. Then only the sealed segments of the store
	// are checked: other files may change between two reads and seem damaged.
	Live bool
}

// Check is a check in progress. It is for one goroutine.
type Check struct {
	// Bytes is the size of all files to check.
	Bytes int64

	o       Options
	history *inspect.Inspection
	wal     *wal.Inspection
	report  Report
	// noLog is the error of a missing raft log.
	noLog error
	// started is set if the member has had a raft log.
	started bool
}

// First is the position of a new store without a raft log, at which every member of a new cluster
// begins. A store at First without a raft log is left by a crash during the first start, and by a
// restore; the next start completes it. The store of a member that joins has no position.
var First = history.Applied{Term: 1, Index: 1}

// Unstarted reports whether a store at a position may belong to a member that has had no raft log
// yet.
func Unstarted(at history.Applied) bool { return at == First || at == history.Applied{} }

// Open examines a directory. It fails with fs.ErrNotExist or ErrNotDataDir if there is nothing to
// check.
func Open(o Options) (*Check, error) {
	c := &Check{o: o}
	c.report = Report{Dir: o.Dir, Live: o.Live, Files: []FileReport{}, Damages: []Damage{}}
	historyDir, walDir, err := c.findDirs()
	if err != nil {
		return nil, err
	}
	if historyDir != "" {
		c.history, err = inspect.Start(inspect.Options{FS: o.FS, Dir: historyDir,
			SealedOnly: o.Live})
		if c.bad(historyDir, err) {
			c.history = nil
		} else {
			c.Bytes += c.history.Bytes
		}
	}
	if walDir != "" && !o.Live {
		c.wal, err = wal.Inspect(wal.InspectOptions{FS: o.FS, Dir: walDir})
		switch {
		case err == nil:
			c.Bytes += c.wal.Bytes
		case errors.Is(err, fs.ErrNotExist) && c.history != nil:
			c.wal, c.noLog = nil,
				errors.New("there is a store and no raft log: it is lost or elsewhere")
		default:
			c.wal = nil
			c.bad(walDir, err)
		}
	}
	return c, nil
}

// findDirs returns the directories of the store and of the raft log, "" for one that is not
// expected.
func (c *Check) findDirs() (historyDir, walDir string, err error) {
	o := &c.o
	if st, err := o.FS.Stat(o.Dir); err != nil {
		return "", "", err
	} else if !st.IsDir() {
		return "", "", fmt.Errorf("%s is %w", o.Dir, ErrNotDataDir)
	}
	exists := func(name string) bool {
		_, err := o.FS.Stat(filepath.Join(o.Dir, name))
		return !errors.Is(err, fs.ErrNotExist)
	}
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return "", "", err
	}
	lock, store, log := exists(LockName), exists(HistoryName), exists(WALName) || o.WALDir != ""
	c.started = exists(StartedName(HistoryName))
	walDir = cmp.Or(o.WALDir, filepath.Join(o.Dir, WALName))
	historyDir = filepath.Join(o.Dir, HistoryName)
	switch {
	case store && !log && !lock && !c.started:
		c.report.Kind = KindCheckpoint
		return historyDir, "", nil
	case store || exists(WALName):
		// Store and raft log need each other: a missing one is damage.
		c.report.Kind = KindDataDir
		return historyDir, walDir, nil
	case anySegment(names, ".seg", ".log"):
		c.report.Kind = KindHistory
		return o.Dir, o.WALDir, nil
	case anySegment(names, ".wal"):
		c.report.Kind = KindWAL
		return "", o.Dir, nil
	case exists("member"):
		return "", "", fmt.Errorf("%s is %w of Vigil but of an etcd member; use etcdutl",
			o.Dir, ErrNotDataDir)
	case exists(RestoringName(HistoryName)):
		return "", "", fmt.Errorf("%w: %w", ErrNotDataDir, ErrRestoring(o.Dir))
	default:
		return "", "", fmt.Errorf("%s is %w: there is neither %s nor %s in it", o.Dir,
			ErrNotDataDir, HistoryName, WALName)
	}
}

// segmentName matches the name of a segment: at least one number of 16 hexadecimal digits, and a
// suffix. Others have files of these suffixes, too.
var segmentName = regexp.MustCompile(`^[0-9a-f]{16}[0-9a-f-]*(\.\w+)$`)

// anySegment reports whether a directory has a segment with one of the suffixes.
func anySegment(names []string, suffixes ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		m := segmentName.FindStringSubmatch(name)
		return m != nil && slices.Contains(suffixes, m[1])
	})
}

// Files checks the files one by one and yields their reports. It ends early when ctx is done. It is
// called once.
func (c *Check) Files(ctx context.Context) iter.Seq[FileReport] {
	return func(yield func(FileReport) bool) {
		if c.history != nil {
			for f := range c.history.Files(ctx) {
				if errors.Is(f.Err, fs.ErrNotExist) && c.o.Live {
					continue
				}
				if !yield(c.add(fromHistory(c.historyDir(), &f))) {
					return
				}
			}
		}
		if c.wal != nil {
			for f := range c.wal.Files(ctx) {
				if !yield(c.add(fromWAL(c.walDir(), &f))) {
					return
				}
			}
		}
	}
}

func (c *Check) historyDir() string {
	if c.report.Kind == KindHistory {
		return c.o.Dir
	}
	return filepath.Join(c.o.Dir, HistoryName)
}

func (c *Check) walDir() string {
	if c.report.Kind == KindWAL {
		return c.o.Dir
	}
	return cmp.Or(c.o.WALDir, filepath.Join(c.o.Dir, WALName))
}

// Report returns the report of Files, and of whether store and raft log belong together.
func (c *Check) Report() *Report {
	r := &c.report
	if h := c.history; h != nil {
		r.Cluster, r.Member = hex(h.ClusterID), hex(h.MemberID)
		r.Revision, r.Term, r.Index = h.Revision, h.Applied.Term, h.Applied.Index
	}
	if w := c.wal; w != nil {
		if c.history == nil {
			r.Cluster, r.Member = hex(w.ID.ClusterID), hex(w.ID.MemberID)
		}
		r.FirstIndex, r.LastIndex, r.LastTerm, r.Commit = w.First, w.Last, w.LastTerm, w.Commit
	}
	switch {
	case c.noLog != nil && (c.started || !Unstarted(c.history.Applied)):
		c.bad(c.walDir(), c.noLog)
	case c.history != nil && c.wal != nil:
		c.bad(c.walDir(), c.checkAgreement())
	}
	return r
}

func hex(id uint64) string { return fmt.Sprintf("%x", id) }

// checkAgreement checks that store and raft log belong together, like a member that starts. It
// returns nil if a damaged file already explains a difference.
func (c *Check) checkAgreement() error {
	h, w := c.history, c.wal
	if h.ClusterID != w.ID.ClusterID || h.MemberID != w.ID.MemberID {
		if w.ID == (wal.Identity{}) || h.ClusterID == 0 && h.MemberID == 0 {
			return nil // no file of it has a good header
		}
		return fmt.Errorf("the raft log is of cluster %x, member %x, and the store of cluster %x, member %x",
			w.ID.ClusterID, w.ID.MemberID, h.ClusterID, h.MemberID)
	}
	if !c.report.OK() {
		return nil
	}
	err := w.Covers(wal.Start{Index: h.Applied.Index, Term: h.Applied.Term})
	if err != nil {
		if _, serr := c.o.FS.Stat(SnapshotName(c.historyDir(), w.Start.Term,
			w.Start.Index)); serr == nil {
			return nil // the next start replaces the store by it
		}
	}
	return err
}
