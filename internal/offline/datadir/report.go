package datadir

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"vigil/internal/store/history"
	"vigil/internal/store/history/inspect"
	"vigil/internal/store/wal"
	"vigil/internal/vfs"
)

// FileReport is the report of one file, also of a missing one.
type FileReport struct {
	// Path is the path of the file.
	Path string `json:"path"`
	// Store is "history" or "wal", Kind the kind of the file.
	Store   string `json:"store"`
	Kind    string `json:"kind"`
	Version uint32 `json:"version,omitempty"`
	Bytes   int64  `json:"bytes"`
	// Segments are the first and last segment of the file, in hexadecimal.
	Segments string `json:"segments,omitempty"`
	// Batches and Records are the numbers of batches and records; of groups and entries in the raft
	// log.
	Batches int `json:"batches"`
	Records int `json:"records"`
	// First and Last are revisions in the store, and indexes in the raft log.
	First int64 `json:"first,omitempty"`
	Last  int64 `json:"last,omitempty"`
	// Torn is how many bytes the next start cuts because a crash tore them.
	Torn   int64   `json:"torn,omitempty"`
	Damage *Damage `json:"damage,omitempty"`
	// Unread is why the file could not be read; whether it is damaged is not known.
	Unread string `json:"unread,omitempty"`
}

// Damage is a damage of a file or a directory.
type Damage struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	Reason string `json:"reason"`
}

func (d *Damage) String() string {
	return fmt.Sprintf("%s: offset %d: %s", d.Path, d.Offset, d.Reason)
}

// Report is the result of a check.
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
	// FirstIndex, LastIndex and Commit belong to the raft log. LastTerm is the term of its last
	// entry: of several members, the one with the highest LastTerm, and among these the highest
	// LastIndex, has lost the least.
	FirstIndex uint64 `json:"first_index,omitempty"`
	LastIndex  uint64 `json:"last_index,omitempty"`
	LastTerm   uint64 `json:"last_term,omitempty"`
	Commit     uint64 `json:"commit,omitempty"`

	Files   []FileReport `json:"files"`
	Bytes   int64        `json:"bytes"`
	Torn    int64        `json:"torn,omitempty"`
	Damages []Damage     `json:"damages"`
	// Unread are the files and directories that could not be read; whether they are damaged is not
	// known.
	Unread []Damage `json:"unread,omitempty"`
}

// OK reports whether everything was read and nothing is damaged.
func (r *Report) OK() bool { return len(r.Damages)+len(r.Unread) == 0 }

// bad adds an error to Damages or to Unread, and reports whether there is one.
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

// unread reports whether err is an error of the system that prevented reading a file: missing
// permissions, file descriptors or memory.
func unread(err error) bool {
	var errno syscall.Errno
	return vfs.CauseOf(err) != vfs.Damage && errors.As(err, &errno) &&
		!errors.Is(err, fs.ErrNotExist)
}

// damage converts an error of a file.
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

func (c *Check) add(f FileReport) FileReport {
	if f.Damage != nil {
		f.Torn = 0 // The member does not start on damaged data, so it cuts nothing.
	}
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

// setError adds an error to the report of a file.
func (f *FileReport) setError(err error) {
	if unread(err) {
		f.Unread = err.Error()
		return
	}
	f.Damage = damage(f.Path, err)
}

func fromHistory(dir string, f *inspect.File) FileReport {
	path := filepath.Join(dir, f.Name)
	out := FileReport{
		Path: path, Store: HistoryName, Kind: f.Kind, Version: f.Version, Bytes: f.Bytes,
		Batches: f.Batches, Records: f.Records + f.Metas, First: f.First.Main, Last: f.Last.Main,
		Torn: f.Torn,
	}
	out.setError(f.Err)
	switch {
	case f.FirstID != f.LastID:
		out.Segments = fmt.Sprintf("%x-%x", f.FirstID, f.LastID)
	case f.FirstID != 0:
		out.Segments = fmt.Sprintf("%x", f.FirstID)
	}
	return out
}

func fromWAL(dir string, f *wal.File) FileReport {
	path := filepath.Join(dir, f.Name)
	out := FileReport{
		Path: path, Store: WALName, Kind: f.Kind, Version: f.Version, Bytes: f.Bytes,
		Segments: strings.TrimLeft(strings.TrimSuffix(f.Name, ".wal"), "0"),
		Batches:  f.Groups, Records: f.Entries, First: int64(f.First), Last: int64(f.Last),
		Torn: f.Torn,
	}
	out.setError(f.Err)
	return out
}
