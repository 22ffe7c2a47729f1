package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/replica/handle"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/wal"
)

// first is the position at which every member of a new cluster begins: the store is created as the
// result of an entry that was never written, and the raft log begins after it.
var first = datadir.First

// ErrRemoved reports that this member was removed from its cluster.
var ErrRemoved = errors.New("the member was removed from its cluster; to join again it needs an " +
	"empty data directory and a new member add")

// Data are the open files of a member: the raft log, the store, and the state machine in it.
type Data struct {
	cfg     Config
	id      wal.Identity
	log     *wal.WAL
	handle  *handle.Handle
	machine *fsm.Machine
}

// OpenData opens the files of a member, creates them if there are none, and rebuilds the state in
// memory.
func OpenData(c Config) (*Data, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	d, err := openDisk(&c)
	if err != nil {
		return nil, err
	}
	data := &Data{cfg: c, log: d.log}
	data.id.ClusterID, data.id.MemberID = d.store.Identity()
	if data.handle, data.machine, err = openStore(&c, data.id.MemberID, d.store); err != nil {
		d.close()
		return nil, err
	}
	return data, nil
}

// Identity returns the ids of the cluster and of the member.
func (d *Data) Identity() (clusterID, memberID uint64) { return d.id.ClusterID, d.id.MemberID }

// Self returns the member as the stored membership has it.
func (d *Data) Self() cluster.Member {
	m, _ := d.machine.Members().Member(d.id.MemberID)
	return m
}

// Members returns the stored membership.
func (d *Data) Members() []cluster.Member { return d.machine.Members().Members() }

// Close closes the data, unless New has taken it over.
func (d *Data) Close() error {
	d.handle.Store.Close()
	files := disk{log: d.log, store: d.handle.Log}
	return files.close()
}

// openStore opens the index of a store, and reads the state machine in it.
func openStore(c *Config, memberID uint64, log *history.Log) (*handle.Handle, *fsm.Machine, error) {
	store, err := mvcc.Open(log, c.Store)
	if err != nil {
		return nil, nil, fmt.Errorf("replica: %w", err)
	}
	machine, err := fsm.New(log, store)
	if err == nil {
		if level := machine.Members().Level(); level > fsm.Level {
			err = fmt.Errorf("the cluster uses requests of level %d and this version of the "+
				"program knows %d: run the version that was used before, or a newer one",
				level, fsm.Level)
		} else if machine.Members().Removed(memberID) {
			err = fmt.Errorf("%w: member %x", ErrRemoved, memberID)
		} else if _, ok := machine.Members().Member(memberID); !ok {
			err = fmt.Errorf("%w: the store belongs to member %x, which is not in its membership",
				kv.ErrCorrupt, memberID)
		}
	}
	if err != nil {
		store.Close()
		return nil, nil, fmt.Errorf("replica: %w", err)
	}
	return handle.New(log, store, machine.Leases()), machine, nil
}

// disk is the open files of a member.
type disk struct {
	log   *wal.WAL
	store *history.Log
}

// openDisk opens the raft log and the store, or creates both.
//
// Creation makes the store first, because the raft log without it would not know who votes, then
// the log, then a mark that says so. A crash before the mark leaves a store at the first position
// with or without a log, and openDisk completes that: such a member has neither voted nor
// acknowledged anything. A log without a store, and a store without a log that has moved on or is
// marked, have another cause and are rejected. Nothing is removed before a store and a log are open
// that belong together.
func openDisk(c *Config) (d disk, err error) {
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	place := c.place()
	left, err := datadir.FindRemains(c.FS, c.HistoryDir, c.WALDir)
	if err != nil {
		return d, fmt.Errorf("replica: %w", err)
	}
	// The log is looked at before the store is opened, so that one of another member or in a newer
	// format leaves the store as it is.
	var owner wal.Identity
	if left.Log {
		if owner, err = wal.Peek(c.FS, c.WALDir); err != nil {
			return d, fmt.Errorf("replica: the raft log in %s: %w", c.WALDir, err)
		}
	}
	if left.Store || len(left.Snapshots) > 0 {
		// If the last run was killed in the middle of a replacement, it has not made the names
		// durable.
		if err := place.SyncParent(); err != nil {
			return d, fmt.Errorf("replica: %w", err)
		}
	}
	if err := place.InstallDecided(&left, c.walOptions(owner)); err != nil {
		return d, fmt.Errorf("replica: %w", err)
	}
	switch {
	case left.Store:
		d.store, err = history.Open(c.historyOptions(owner))
		if errors.Is(err, history.ErrIdentity) {
			err = fmt.Errorf("replica: store and raft log do not belong together: %w", err)
		}
	case left.Restoring:
		return d, fmt.Errorf("replica: %w",
			datadir.ErrRestoring(filepath.Dir(filepath.Clean(c.HistoryDir))))
	case left.Log:
		return d, fmt.Errorf("replica: there is a raft log in %s and no store in %s: the store "+
			"is lost or elsewhere; start the member with the --data-dir that it had",
			c.WALDir, c.HistoryDir)
	case left.Started:
		return d, fmt.Errorf("replica: there is neither a store in %s nor a raft log in %s, and "+
			"the file %s says that a member has run here: start it with the --data-dir and the "+
			"--wal-dir that it had; if its data is lost, remove all of the data directory and "+
			"replace the member",
			c.HistoryDir, c.WALDir, datadir.StartedName(c.HistoryDir))
	case !left.None():
		return d, fmt.Errorf("replica: there is neither a store in %s nor a raft log in %s, and "+
			"next to the store's place are parts of a member that was installing a snapshot: "+
			"start it with the --data-dir and the --wal-dir that it had",
			c.HistoryDir, c.WALDir)
	default:
		d.store, err = createStore(c)
	}
	if err != nil {
		return d, err
	}
	var id wal.Identity
	id.ClusterID, id.MemberID = d.store.Identity()
	if c.ForceNewCluster && d.store.Applied() == (history.Applied{}) {
		return d, fmt.Errorf("replica: --force-new-cluster: member %x was added to cluster %x "+
			"and has received no data yet: there is nothing to keep; force another member, or "+
			"restore a backup",
			id.MemberID, id.ClusterID)
	}
	switch at := d.store.Applied(); {
	case left.Log:
		o := c.walOptions(id)
		o.Applied = wal.Start{Index: at.Index, Term: at.Term}
		if d.log, err = wal.Open(o); err != nil {
			err = fmt.Errorf("replica: %w", err)
		}
	case left.Started && datadir.Unstarted(at):
		return d, fmt.Errorf("replica: the store in %s is new, there is no raft log in %s, and "+
			"the file %s says that the member has had one, by which it may have voted: the log "+
			"is lost or elsewhere; start the member with the --wal-dir that it had; if the log "+
			"is lost, restore the member from a backup, or remove it from the cluster and add it "+
			"again with an empty data directory",
			c.HistoryDir, c.WALDir, datadir.StartedName(c.HistoryDir))
	case !datadir.Unstarted(at), len(left.Snapshots) > 0:
		return d, fmt.Errorf("replica: the store in %s is at index %d and there is no raft log "+
			"in %s: the log is lost or elsewhere; start the member with the --wal-dir that it had",
			c.HistoryDir, at.Index, c.WALDir)
	default:
		d.log, err = wal.Create(c.walOptions(id), wal.Start{Index: at.Index, Term: at.Term})
	}
	if err == nil && datadir.Unstarted(d.store.Applied()) {
		err = markStarted(&place)
	}
	if err == nil {
		// The store and the raft log belong together: other directories are not needed.
		err = place.RemoveRemains(&left)
	}
	return d, err
}

// markStarted makes durable that the member has had a raft log, before it does anything with it. It
// does so again if the mark is there already: a process that was killed may not have made it
// durable.
func markStarted(place *transfer.Place) error {
	file, err := place.FS.Create(datadir.StartedName(place.HistoryDir))
	switch {
	case err == nil:
		err = file.Close()
	case errors.Is(err, fs.ErrExist):
		err = nil
	}
	if err == nil {
		err = place.SyncParent()
	}
	if err != nil {
		return fmt.Errorf("replica: marking the store in %s as one with a raft log: %w",
			place.HistoryDir, err)
	}
	return nil
}

// createStore creates the store of a member without data. A member of a new cluster begins with the
// state of all; a member that joins with an empty store at position 0, before every entry, so that
// it gets a snapshot first. It knows the members only to reach them.
func createStore(c *Config) (*history.Log, error) {
	if j := c.Joining; j != nil {
		members := &cluster.State{}
		for _, m := range j.Members {
			if err := members.Load(cluster.Record{ID: m.ID}.Key(),
				cluster.EncodeMember(m)); err != nil {
				return nil, fmt.Errorf("replica: the cluster to join: %w", err)
			}
		}
		if _, ok := members.Member(j.MemberID); !ok || j.ClusterID == 0 {
			return nil, fmt.Errorf("replica: member %x is not in the cluster %x that it is to join",
				j.MemberID, j.ClusterID)
		}
		id := wal.Identity{ClusterID: j.ClusterID, MemberID: j.MemberID}
		return history.Create(c.historyOptions(id), history.Applied{},
			fsm.InitialRecords(members, &raftpb.ConfState{}))
	}
	members, err := cluster.Initial(c.Token, c.InitialMembers)
	if err != nil {
		return nil, err
	}
	id := wal.Identity{ClusterID: cluster.ID(members.IDs())}
	for _, m := range members.Members() {
		if m.Name == c.Name {
			if id.MemberID != 0 {
				return nil, fmt.Errorf("replica: two members of the initial cluster are called %q",
					c.Name)
			}
			id.MemberID = m.ID
		}
	}
	if id.MemberID == 0 {
		return nil, fmt.Errorf("replica: no member of the initial cluster is called %q", c.Name)
	}
	if c.UnsharedNames {
		list := slices.Clone(c.InitialMembers)
		for i := range list {
			list[i].Name = ""
		}
		if members, err = cluster.Initial(c.Token, list); err != nil {
			return nil, err
		}
	}
	conf := &raftpb.ConfState{Voters: members.IDs()}
	return history.Create(c.historyOptions(id), first, fsm.InitialRecords(members, conf))
}

// close closes the log before the store: the log has the entries that the store could lose.
func (d *disk) close() error {
	var errs []error
	if d.log != nil {
		errs = append(errs, d.log.Close())
	}
	if d.store != nil {
		errs = append(errs, d.store.Close())
	}
	return errors.Join(errs...)
}
