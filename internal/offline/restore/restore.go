package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

// Run builds a data directory.
func Run(ctx context.Context, o Options) (Summary, error) {
	b, err := newBuilder(ctx, &o)
	if err != nil {
		return Summary{}, err
	}
	if err := b.dirs.create(); err != nil {
		return Summary{}, err
	}
	if err := b.build(); err != nil {
		b.closeIncomplete()
		return Summary{}, errors.Join(err, b.dirs.remove())
	}
	if err := b.dirs.nameStore(o.NoSync); err != nil {
		return Summary{}, errors.Join(err, b.dirs.remove())
	}
	return b.res, nil
}

// builder is a restore in progress.
type builder struct {
	ctx     context.Context
	o       *Options
	dirs    directories
	members *cluster.State
	res     Summary

	loader
	newestTime int64 // of the newest revision, 0 if it is not known
	closed     bool
}

func newBuilder(ctx context.Context, o *Options) (*builder, error) {
	if (o.BumpRevision > 0) != o.MarkCompacted {
		return nil, errors.New("--mark-compacted required if --bump-revision > 0")
	}
	if o.BumpRevision > maxRevision {
		return nil, fmt.Errorf("--bump-revision %d is more than %d", o.BumpRevision,
			int64(maxRevision))
	}
	members, err := cluster.Initial(o.Token, o.Members)
	if err != nil {
		return nil, fmt.Errorf("--initial-cluster: %w", err)
	}
	b := &builder{ctx: ctx, o: o, members: members,
		dirs: directories{fs: o.FS, data: o.DataDir, wal: o.WALDir}}
	b.res.Members = members.Members()
	for _, m := range members.Members() {
		if m.Name == o.Name {
			b.res.MemberID = m.ID
		}
	}
	if b.res.MemberID == 0 {
		return nil, fmt.Errorf("couldn't find local name %q in the initial cluster configuration: --initial-cluster must list the member --name", o.Name)
	}
	return b, nil
}

// build fills the store.
func (b *builder) build() error {
	if b.o.State != nil {
		return b.buildState()
	}
	if len(b.o.Others) > 0 {
		list, best, err := newest(b.ctx, b.o)
		if err != nil {
			return err
		}
		b.o.Source, b.res.Positions = list[best].Source, list
	}
	src, err := openSource(b.ctx, b.o)
	if err != nil {
		return err
	}
	defer src.close()
	b.res.Source = b.o.Source
	if src.last.Source != "" && b.res.Positions == nil {
		b.res.Positions = []Position{src.last}
	}
	b.res.ClusterID = b.clusterID(src)
	if err := b.createStore(src.size); err != nil {
		return err
	}
	b.res.Index, b.res.Torn = src.db.Contents.Index, src.torn
	c, compact, err := src.loadInto(&b.loader)
	if err != nil {
		return err
	}
	b.res.Compact = compact
	conf := &raftpb.ConfState{Voters: b.members.IDs()}
	c.Members, c.Conf = b.members, conf
	if err := b.addContents(c); err != nil {
		return err
	}
	if len(src.entries) > 0 {
		out, err := replay(b.ctx, b.log, src.entries, b.o.SkipRejected)
		if err != nil {
			return err
		}
		c, b.res.Rejected = out.contents, out.rejected
		b.res.Replayed, b.res.Index = len(src.entries), src.entries[len(src.entries)-1].GetIndex()
		b.res.Revision, b.res.Compact = out.revision, out.compact
	}
	b.res.Alarms = c.Alarms
	b.res.Leases, b.res.Users, b.res.Roles, b.res.AuthEnabled = len(c.Leases), len(c.Auth.Users()),
		len(c.Auth.Roles()), c.Auth.Enabled()
	return b.finishStore()
}

// createStore creates the store, for which size bytes are needed.
func (b *builder) createStore(size int64) (err error) {
	if free, err := b.o.FS.Free(b.o.DataDir); err == nil && free < size {
		return fmt.Errorf("%w: %s has room for %d bytes, and the backup has %d", kv.ErrNoSpace,
			b.o.DataDir, free, size)
	}
	ho := history.Options{FS: b.o.FS, Dir: b.dirs.build(), ClusterID: b.res.ClusterID,
		MemberID: b.res.MemberID, NoSync: b.o.NoSync}
	b.log, err = history.Create(ho, history.Applied{}, nil)
	return err
}

// clusterID returns an id that only members have that were restored from the same backup with the
// same options. A member that was not restored, or not completely, has another id, and can neither
// vote in the cluster nor lead it.
func (b *builder) clusterID(s *source) uint64 {
	last := s.db.Contents.Index
	if n := len(s.entries); n > 0 {
		last = s.entries[n-1].GetIndex()
	}
	return cluster.RestoredID(b.members.IDs(), last, uint64(max(s.db.Contents.Compact, 0)),
		b.o.BumpRevision)
}

// addContents adds everything except the records.
func (b *builder) addContents(c *fsm.Contents) error {
	list := c.Records()
	if b.res.Compact > 0 {
		list = append(list, mvcc.CompactRecord(b.res.Compact, 0))
	}
	for _, m := range list {
		if err := b.log.AppendMeta(m); err != nil {
			return err
		}
	}
	b.res.Records = b.records
	b.res.Revision = max(b.last, b.res.Compact, 1)
	return b.log.Commit(history.Applied{})
}

// finishStore sets the position at which every member of a new cluster begins, and closes the
// store.
func (b *builder) finishStore() error {
	for _, a := range b.res.Alarms {
		if err := b.log.AppendMeta(fsm.ClearedAlarm(a)); err != nil {
			return err
		}
	}
	if b.o.MarkCompacted {
		if b.res.Revision += int64(b.o.BumpRevision); b.res.Revision > maxRevision {
			return fmt.Errorf("--bump-revision %d raises the revision to %d, which is more than %d",
				b.o.BumpRevision, b.res.Revision, int64(maxRevision))
		}
		b.res.Compact = b.res.Revision
		// It has the keys of the newest revision, and so that time: times do not descend.
		compact := mvcc.CompactRecord(b.res.Compact, b.newestTime)
		if err := b.log.AppendMeta(compact); err != nil {
			return err
		}
	}
	if err := b.log.Commit(datadir.First); err != nil {
		return err
	}
	b.closed = true
	return b.log.Close()
}

// closeIncomplete closes an incomplete store.
func (b *builder) closeIncomplete() {
	if b.log != nil && !b.closed {
		b.closed = true
		b.log.Retire()
		_ = b.log.Close()
	}
}

// buildState fills the store out of a State.
func (b *builder) buildState() error {
	s := b.o.State
	b.res.ClusterID = cluster.RestoredID(b.members.IDs(), append(s.Identity(), b.o.BumpRevision)...)
	if err := b.createStore(s.Size()); err != nil {
		return err
	}
	r := &Rebuild{loader: loader{log: b.log}}
	err := s.Build(r)
	if err == nil && r.m == nil {
		err = errors.New("the backup has no state")
	}
	if err == nil {
		err = r.Commit()
	}
	if err == nil {
		b.res.Revision, b.res.Compact = r.store.Revision(), r.store.CompactRevision()
		b.newestTime = r.store.NewestTime()
	}
	r.stop()
	if err != nil {
		return err
	}
	b.res.Records, b.res.Replayed, b.res.Index = r.records, r.entries, r.applied.Index
	c, err := fsm.ReadContents(b.log.AllMeta())
	if err != nil {
		return err
	}
	b.res.Leases, b.res.Users, b.res.Roles, b.res.AuthEnabled = len(c.Leases), len(c.Auth.Users()),
		len(c.Auth.Roles()), c.Auth.Enabled()
	if err := b.newCluster(c); err != nil {
		return err
	}
	if err := b.finishStore(); err != nil {
		return err
	}
	b.res.Alarms = c.Alarms
	return nil
}

// newCluster replaces the meta records with records of the new cluster at the first position. It
// leaves out everything about the old members and about positions of the old log.
func (b *builder) newCluster(c *fsm.Contents) error {
	next := &fsm.Contents{Members: b.members, Conf: &raftpb.ConfState{Voters: b.members.IDs()},
		Auth: c.Auth, Leases: slices.Clone(c.Leases)}
	for i := range next.Leases {
		next.Leases[i].Granted, next.Leases[i].Since = datadir.First.Index, datadir.First.Index
	}
	list := next.Records()
	keep := map[string]bool{}
	for i := range list {
		keep[list[i].Name()] = true
	}
	for _, m := range b.log.AllMeta() {
		if m.Bucket != mvcc.MetaBucket && !keep[m.Name()] {
			list = append(list, history.Meta{Bucket: m.Bucket, Key: m.Key, Deleted: true})
		}
	}
	for _, m := range list {
		if err := b.log.AppendMeta(m); err != nil {
			return err
		}
	}
	return b.log.Commit(history.Applied{})
}
