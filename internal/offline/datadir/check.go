package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"strings"
	"syscall"

	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// The names in a data directory.
const (
	LockName    = "LOCK"
	WALName     = "wal"
	HistoryName = "history"
)

// SnapshotName returns the name, beside that of a store, of a received snapshot that is whole: a store at
// a position. It takes the store's place if the raft log begins at that position.
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

// ErrNotDataDir is the error of a directory that is none that this program knows.
var ErrNotDataDir = errors.New("not a data directory")

// Options say what to check.
type Options struct {
	// FS is the file system. It is only read.
	FS vfs.FS
	// Dir is a data directory or a checkpoint, or the history or wal directory of one.
	Dir string
	// WALDir is where the raft log is, if not in Dir.
	WALDir string
	// Live says that a member has the directory open. Then only the sealed segments of the store are
	// looked at: everything else may change between two looks, and seem damaged.
	Live bool
}

// File is what was found in one file, or in place of one that is missing.
type File struct {
	// Path is that of the file.
	Path string `json:"path"`
	// Store is "history" or "wal", Kind what the file is there.
	Store   string `json:"store"`
	Kind    string `json:"kind"`
	Version uint32 `json:"version,omitempty"`
	Bytes   int64  `json:"bytes"`
	// Segments are the first and last segment that the file stands for, in hexadecimal.
	Segments string `json:"segments,omitempty"`
	// Batches and Records are how many it holds: in the raft log groups and entries.
	Batches int `json:"batches"`
	Records int `json:"records"`
	// First and Last are of revisions in the store, and of indexes in the raft log.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
	// Torn is how many bytes the next start cuts because a crash tore them.
	Torn   int64   `json:"torn,omitempty"`
	Damage *Damage `json:"damage,omitempty"`
	// Unread is why the file could not be read, which says nothing about what is in it.
	Unread string `json:"unread,omitempty"`
}

// Damage is what is wrong with a file or a directory.
type Damage struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	Reason string `json:"reason"`
}

func (d *Damage) String() string {
	return fmt.Sprintf("%s: offset %d: %s", d.Path, d.Offset, d.Reason)
}

// Report is what a check came to.
type Report struct {
	Dir  string `json:"dir"`
	Kind string `json:"kind"`
	Live bool   `json:"live,omitempty"`
	// Cluster and Member are the ids in hexadecimal.
	Cluster string `json:"cluster,omitempty"`
	Member  string `json:"member,omitempty"`
	// Revision, Term and Index are the end of the store.
	Revision int64  `json:"revision"`
	Term     uint64 `json:"term"`
	Index    uint64 `json:"index"`
	// FirstIndex, LastIndex and Commit are those of the raft log.
	FirstIndex uint64 `json:"first_index,omitempty"`
	LastIndex  uint64 `json:"last_index,omitempty"`
	Commit     uint64 `json:"commit,omitempty"`

	Files   []File   `json:"files"`
	Bytes   int64    `json:"bytes"`
	Torn    int64    `json:"torn,omitempty"`
	Damages []Damage `json:"damages"`
	// Unread are the files and directories that could not be read: whether they are damaged is not known.
	Unread []Damage `json:"unread,omitempty"`
}

// OK says that everything was read and nothing is damaged.
func (r *Report) OK() bool { return len(r.Damages)+len(r.Unread) == 0 }

// Check is a check under way. It is for one goroutine.
type Check struct {
	// Bytes is the size of all files that will be looked at.
	Bytes int64

	o       Options
	history *history.Inspection
	wal     *wal.Inspection
	report  Report
	// noLog is why there is no raft log although there should be one.
	noLog error
	// started says that the member has had a raft log.
	started bool
}

// First is the position of a store that was created and has no raft log yet, of a member that joins
// it is none: a crash in the middle of the first start leaves it, and so does a restore; the next start
// completes it. Every member of a new cluster begins there.
var First = history.Applied{Term: 1, Index: 1}

// Unstarted reports whether a store at a position may be that of a member which has had no raft log yet.
func Unstarted(at history.Applied) bool { return at == First || at == history.Applied{} }

// Open finds out what is in a directory. It fails with fs.ErrNotExist or ErrNotDataDir if there is
// nothing to check.
func Open(o Options) (*Check, error) {
	c := &Check{o: o}
	c.report = Report{Dir: o.Dir, Live: o.Live, Files: []File{}, Damages: []Damage{}}
	historyDir, walDir, err := c.layout()
	if err != nil {
		return nil, err
	}
	if historyDir != "" {
		c.history, err = history.Inspect(history.InspectOptions{FS: o.FS, Dir: historyDir, SealedOnly: o.Live})
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
			c.wal, c.noLog = nil, errors.New("there is a store and no raft log: it is lost or elsewhere")
		default:
			c.wal = nil
			c.bad(walDir, err)
		}
	}
	return c, nil
}

// layout finds the directories of the store and of the raft log, "" for one that there should not be.
func (c *Check) layout() (historyDir, walDir string, err error) {
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
	if o.WALDir == "" {
		walDir = filepath.Join(o.Dir, WALName)
	} else {
		walDir = o.WALDir
	}
	historyDir = filepath.Join(o.Dir, HistoryName)
	switch {
	case store && !log && !lock && !c.started:
		c.report.Kind = KindCheckpoint
		return historyDir, "", nil
	case store || exists(WALName):
		// Neither half works without the other: what is missing is damage.
		c.report.Kind = KindDataDir
		return historyDir, walDir, nil
	case anySuffix(names, ".seg", ".log"):
		c.report.Kind = KindHistory
		return o.Dir, o.WALDir, nil
	case anySuffix(names, ".wal"):
		c.report.Kind = KindWAL
		return "", o.Dir, nil
	case exists("member"):
		return "", "", fmt.Errorf("%s is %w of Vigil but of an etcd member; use etcdutl", o.Dir, ErrNotDataDir)
	case exists(RestoringName(HistoryName)):
		return "", "", fmt.Errorf("%w: %w", ErrNotDataDir, ErrRestoring(o.Dir))
	default:
		return "", "", fmt.Errorf("%s is %w: there is neither %s nor %s in it", o.Dir, ErrNotDataDir, HistoryName, WALName)
	}
}

func anySuffix(names []string, suffixes ...string) bool {
	for _, n := range names {
		for _, s := range suffixes {
			if strings.HasSuffix(n, s) {
				return true
			}
		}
	}
	return false
}

// bad notes an error as damage, or that something could not be read; false if there is none.
func (c *Check) bad(path string, err error) bool {
	switch {
	case err == nil:
		return false
	case unread(err):
		c.report.Unread = append(c.report.Unread, Damage{Path: path, Reason: err.Error()})
	default:
		c.report.Damages = append(c.report.Damages, *damage(path, err))
	}
	return true
}

// unread says that err kept a file from being read and is about the system and not about the file: missing
// rights, file descriptors or memory.
func unread(err error) bool {
	var errno syscall.Errno
	return vfs.CauseOf(err) != vfs.Damage && errors.As(err, &errno) && !errors.Is(err, fs.ErrNotExist)
}

// damage turns an error about a file into what is reported.
func damage(path string, err error) *Damage {
	if err == nil {
		return nil
	}
	d := &Damage{Path: path, Reason: err.Error()}
	var h *history.CorruptError
	var w *wal.CorruptError
	switch {
	case errors.As(err, &h):
		*d = Damage{h.File, h.Offset, h.Reason}
	case errors.As(err, &w):
		*d = Damage{w.File, w.Offset, w.Reason}
	}
	return d
}

// Files checks one file after another and yields what it found. It ends early when ctx is done. It is
// called once.
func (c *Check) Files(ctx context.Context) iter.Seq[File] {
	return func(yield func(File) bool) {
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
	switch {
	case c.report.Kind == KindWAL:
		return c.o.Dir
	case c.o.WALDir != "":
		return c.o.WALDir
	}
	return filepath.Join(c.o.Dir, WALName)
}

func (c *Check) add(f File) File {
	c.report.Files = append(c.report.Files, f)
	c.report.Bytes += f.Bytes
	c.report.Torn += f.Torn
	if f.Damage != nil {
		c.report.Damages = append(c.report.Damages, *f.Damage)
	}
	if f.Unread != "" {
		c.report.Unread = append(c.report.Unread, Damage{Path: f.Path, Reason: f.Unread})
	}
	return f
}

// judge notes what is wrong with a file.
func (f *File) judge(err error) {
	if unread(err) {
		f.Unread = err.Error()
		return
	}
	f.Damage = damage(f.Path, err)
}

func fromHistory(dir string, f *history.File) File {
	path := filepath.Join(dir, f.Name)
	out := File{
		Path: path, Store: HistoryName, Kind: f.Kind, Version: f.Version, Bytes: f.Bytes,
		Batches: f.Batches, Records: f.Records + f.Metas, First: f.First.Main, Last: f.Last.Main,
		Torn: f.Torn,
	}
	out.judge(f.Err)
	switch {
	case f.FirstID != f.LastID:
		out.Segments = fmt.Sprintf("%x-%x", f.FirstID, f.LastID)
	case f.FirstID != 0:
		out.Segments = fmt.Sprintf("%x", f.FirstID)
	}
	return out
}

func fromWAL(dir string, f *wal.File) File {
	path := filepath.Join(dir, f.Name)
	out := File{
		Path: path, Store: WALName, Kind: f.Kind, Version: f.Version, Bytes: f.Bytes,
		Segments: strings.TrimLeft(strings.TrimSuffix(f.Name, ".wal"), "0"),
		Batches:  f.Groups, Records: f.Entries, First: int64(f.First), Last: int64(f.Last),
		Torn: f.Torn,
	}
	out.judge(f.Err)
	return out
}

// Report returns what Files came to, and whether store and raft log belong together.
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
		r.FirstIndex, r.LastIndex, r.Commit = w.First, w.Last, w.Commit
	}
	switch {
	case c.noLog != nil && (c.started || !Unstarted(c.history.Applied)):
		c.bad(c.walDir(), c.noLog)
	case c.history != nil && c.wal != nil:
		c.bad(c.walDir(), c.agree())
	}
	return r
}

func hex(id uint64) string { return fmt.Sprintf("%x", id) }

// agree checks that store and raft log belong together, by what a member checks when it starts. It
// says nothing where a damaged file already explains it.
func (c *Check) agree() error {
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
		if _, serr := c.o.FS.Stat(SnapshotName(c.historyDir(), w.Start.Term, w.Start.Index)); serr == nil {
			return nil // the next start puts it in the store's place
		}
	}
	return err
}
