package restore

import (
	"fmt"
	"math"

	"vigil/internal/kv"
	"vigil/internal/state/cluster"
	"vigil/internal/vfs"
)

// maxRevision is the limit for revisions of the store.
const maxRevision = math.MaxInt64 >> 1

// Options select the backup and describe the new member.
type Options struct {
	FS vfs.FS
	// Source is a file, the data directory of an etcd member, or a checkpoint. SourceWAL is the
	// raft log of the etcd member, if it is not in Source.
	Source, SourceWAL string
	// Others are the data directories of other members of the same etcd cluster. The newest of all
	// is restored.
	Others []string
	// SkipHash accepts a file without the hash that a member appends.
	SkipHash bool
	// SkipRejected restores the data directory of an etcd member without the requests in its raft
	// log that exceed a limit of this program.
	SkipRejected bool

	// DataDir is created, or must be empty. WALDir, if set, is the future directory of the raft
	// log, which must be empty.
	DataDir, WALDir string
	// Name is the name of the member, Members are the names and peer URLs of the cluster. Token
	// distinguishes clusters with the same members.
	Name    string
	Members []cluster.Member
	Token   string

	// BumpRevision is added to the newest revision. With MarkCompacted everything up to that is
	// compacted, so that no client mistakes data of a later state for data of this one. Both or
	// neither are set.
	BumpRevision  uint64
	MarkCompacted bool

	// State, if set, is the backup instead of Source.
	State State

	// Progress, if set, is called with the current step, its bytes done and its total bytes.
	Progress func(what string, done, total int64)
	// NoSync omits every sync.
	NoSync bool
}

// Summary describes the new data directory.
type Summary struct {
	ClusterID, MemberID uint64
	// Members are the members of the new cluster, with their ids.
	Members []cluster.Member
	// Source is the backup that was restored. Positions are the ends of the raft logs of the etcd
	// members whose directories were given.
	Source    string
	Positions []Position
	// Index is the position of the raft log at which the backup was made.
	Index uint64
	// Revision is the newest revision now, Compact the compact revision, -1 for none.
	Revision, Compact int64
	Records           int64
	Leases            int
	Users, Roles      int
	AuthEnabled       bool
	// Replayed is how many entries of the raft log were not in the database, Torn how many bytes an
	// incomplete entry at its end has.
	Replayed int
	Torn     int64
	// Rejected are the requests of the raft log that are not restored because of SkipRejected.
	Rejected []Rejected
	// Alarms are the alarms of the backup. They are not restored: they are about the members of the
	// old cluster.
	Alarms []kv.Alarm
}

// progress returns a function that sums up the bytes of a step and reports them.
func (o *Options) progress(what string, total int64) func(int64) {
	if o.Progress == nil {
		return nil
	}
	var done int64
	return func(n int64) {
		done += n
		o.Progress(what, min(done, total), total)
	}
}

// Position is where the raft log of an etcd member ends: the term and the index of its last entry.
type Position struct {
	Source string
	// ClusterID is the cluster of the member.
	ClusterID   uint64
	Term, Index uint64
}

func (p Position) String() string {
	return fmt.Sprintf("%s ends with term %d, index %d", p.Source, p.Term, p.Index)
}

// newer reports whether p has entries that other lacks, by the order in which raft compares logs.
// Only such a member could have become the leader, so only its log is sure to have every
// acknowledged entry. Neither a revision nor an index says that: a former leader may have many
// entries that nobody acknowledged.
func (p Position) newer(other Position) bool {
	return p.Term > other.Term || p.Term == other.Term && p.Index > other.Index
}
