package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/access"
	"vigil/internal/member/replica/alarms"
	"vigil/internal/member/replica/apply"
	"vigil/internal/member/replica/audit"
	"vigil/internal/member/replica/contact"
	"vigil/internal/member/replica/custody"
	"vigil/internal/member/replica/damage"
	"vigil/internal/member/replica/freespace"
	"vigil/internal/member/replica/gets"
	"vigil/internal/member/replica/handle"
	"vigil/internal/member/replica/install"
	"vigil/internal/member/replica/leadership"
	"vigil/internal/member/replica/lessor"
	"vigil/internal/member/replica/level"
	"vigil/internal/member/replica/members"
	"vigil/internal/member/replica/position"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/member/replica/revtime"
	"vigil/internal/member/replica/source"
	"vigil/internal/member/replica/space"
	"vigil/internal/member/replica/timing"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/member/replica/truncate"
	"vigil/internal/member/stage"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/wal"
	"vigil/internal/store/watch"
)

// Replica is one member: it makes the parts of a member, and starts and stops them. Each part has
// its own state. New says which part uses which others; no part knows the Replica.
type Replica struct {
	cfg                 Config
	clusterID, memberID uint64
	// network reaches the other members; nil if there never are any.
	network Network

	// The disk.
	raftLog *wal.WAL
	current *handle.Current
	damage  *damage.Places
	// scrubber is nil if the store is not scrubbed.
	scrubber *damage.Scrubber
	custody  *custody.Watch
	gauge    *freespace.Gauge
	space    *space.Room
	monitor  *space.Monitor
	truncate *truncate.Truncator

	// line carries out the stages of a write: append, turn and apply of the node, and answers. A
	// request that is alone goes through all of them on the goroutine that has started it.
	line      *stage.Line
	answers   *stage.Stage
	through   []*stage.Stage
	answering sync.Pool // of *answering
	gets      *gets.Gets

	// The pipeline: requests, raft, entries that are applied, and the position of the results.
	queue     *proposal.Queue
	node      *raftnode.Node
	applier   apply.Applier
	installer *install.Installer
	stall     *space.Stall
	applied   *position.Applied
	trail     *position.Trail
	proposals proposals
	timings   *timing.Recorder
	contacts  *contact.Contacts
	// Reader tells when the state may be read.
	*position.Reader

	// The subscribers of commits; see subscribers.go.
	hub    *watch.Hub
	roster *members.Roster
	lessor *lessor.Lessor
	// Access decides what clients may do, and serves users and roles.
	Access *access.Control
	// Alarms serves and changes the alarms of the cluster.
	Alarms *alarms.Alarms
	// API serves and changes the level of the API that the cluster speaks.
	API *level.Level
	// Times knows when revisions were made.
	Times *revtime.Times
	// Source has the data for an archive.
	Source *source.Source

	// The services for clients and other members.
	// Members serves and changes the membership, Leadership moves it between members.
	Members    *members.Members
	Leadership *leadership.Leadership
	// Leases serves clients that ask for leases.
	Leases *lessor.Leases
	// audit compares this member with others.
	audit *audit.Auditor
	trust audit.Trust
	// sender and receiver are the two ends of snapshots.
	sender   *transfer.Sender
	receiver *transfer.Receiver
	// backups holds a token for each backup under way.
	backups chan struct{}

	ready    chan struct{} // closed when the member serves
	stopping chan struct{} // closed when Stop begins, or the member fails
	halt     sync.Once
	failed   chan error // has room for one
	failing  sync.Once
	closed   chan struct{} // closed when Stop is done
	stop     sync.Once
	stopErr  error

	cancel     context.CancelFunc // ends the duties
	background sync.WaitGroup     // the duties
	errands    errands
	// ticker is the clock of raft, rounds that of the keeper. They have begun at Ticking.
	ticker, rounds *time.Ticker
	Ticking        time.Time
}

// New returns the member of data. Start lets it take part in the cluster. network reaches the other
// members; nil only if there never are any. The data belong to the member, and are closed if New
// fails.
func New(d *Data, network Network) (*Replica, error) {
	r := &Replica{
		backups:   make(chan struct{}, maxBackups),
		cfg:       d.cfg,
		network:   network,
		clusterID: d.id.ClusterID,
		memberID:  d.id.MemberID,
		raftLog:   d.log,
		ready:     make(chan struct{}),
		stopping:  make(chan struct{}),
		failed:    make(chan error, 1),
		closed:    make(chan struct{}),
	}
	if err := r.assemble(d); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return r, nil
}

// assemble connects the parts above the disk, each to those that it uses.
func (r *Replica) assemble(d *Data) (err error) {
	c, machine, at := &r.cfg, d.machine, d.handle.Log.Applied()
	election := time.Duration(c.ElectionTicks) * c.TickInterval
	last, err := r.raftLog.LastIndex()
	if err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	r.assembleDisk(d.handle)
	r.roster = members.NewRoster(r.memberID, r.network, machine.Members())
	r.applied = &position.Applied{}
	r.applied.Advance(at.Index)
	r.trail = position.NewTrail(at.Index, c.CatchUpBytes/16,
		position.TrailBounds{Requests: c.SnapshotCount, Bytes: c.SnapshotBytes})
	r.timings = timing.New(timing.Options{WarnApplyDuration: c.WarnApplyDuration,
		NoteSteps: c.NoteSteps,
		Tracer:    c.Tracer, Logger: c.Logger})
	r.line = stage.NewLine()
	r.answers = r.line.Add(r.answerCalls, numAnswerers())
	r.queue = proposal.New(proposal.Options{
		Answers:          r.answers,
		Member:           r.memberID,
		MaxGroupBytes:    c.MaxGroupBytes,
		MaxGroupRequests: c.MaxGroupRequests,
		MaxPendingBytes:  c.MaxPendingBytes,
		MaxRequestBytes:  c.MaxRequestBytes,
		Space:            r.space,
		Stamper:          revtime.NewStamper(c.Clock, r.newestTime, c.Logger),
	})
	r.Access, err = access.New(access.Options{
		Pipeline:       r,
		State:          machine.Auth(),
		JWT:            c.JWT,
		TokenTTL:       c.TokenTTL,
		LogIndex:       last,
		BcryptCost:     c.BcryptCost,
		RequestTimeout: c.RequestTimeout,
		Logger:         c.Logger,
	})
	if err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	// The tickers of a member begin together, also that of the lessor, so that a member at rest is
	// woken once for all of them.
	r.Ticking = time.Now()
	r.ticker, r.rounds = time.NewTicker(c.TickInterval), time.NewTicker(c.TickInterval)
	snapshots := r.transferOptions()
	r.sender = transfer.NewSender(snapshots)
	conf := machine.ConfState()
	if c.ForceNewCluster {
		conf = members.ForcedConf(r.memberID)
	}
	r.node, err = raftnode.New(raftnode.Config{
		ID:             r.memberID,
		Log:            custody.Log{WAL: r.raftLog, Watch: r.custody},
		ConfState:      conf,
		Applied:        at.Index,
		Line:           r.line,
		Machine:        &r.applier,
		Ticks:          r.ticker.C,
		TickInterval:   c.TickInterval,
		ElectionTicks:  c.ElectionTicks,
		NoPreVote:      c.NoPreVote,
		Proposals:      r.queue,
		Transport:      r.raftTransport(),
		Snapshots:      r.snapshots(),
		Logger:         c.Logger,
		MaxInFlight:    c.MaxInFlight,
		MaxUncommitted: uint64(c.twoLargest()),
	})
	if err != nil {
		r.ticker.Stop()
		return fmt.Errorf("replica: %w", err)
	}
	r.sender.SetRaft(r.node)
	r.receiver = transfer.NewReceiver(snapshots, r.node)
	r.contacts = contact.New(contact.Options{
		MemberID:        r.memberID,
		Raft:            r.node,
		Network:         r.network,
		Membership:      r.roster,
		ElectionTimeout: election,
	})
	r.Reader = position.NewReader(position.ReaderOptions{
		Applied:        r.applied,
		Raft:           r.node,
		Contacts:       r.contacts,
		Timings:        r.timings,
		Stopping:       r.stopping,
		RequestTimeout: c.RequestTimeout,
	})
	r.Leadership = leadership.New(leadership.Options{
		MemberID:        r.memberID,
		Raft:            r.node,
		Membership:      r.roster,
		Contacts:        r.contacts,
		ElectionTicks:   c.ElectionTicks,
		ElectionTimeout: election,
		RequestTimeout:  c.RequestTimeout,
		Logger:          c.Logger,
	})
	r.Members = members.New(members.Options{
		MemberID:       r.memberID,
		Roster:         r.roster,
		Raft:           r.node,
		Queue:          r.queue,
		Access:         r.Access,
		Contacts:       r.contacts,
		Leadership:     r.Leadership,
		Reads:          r.Reader,
		Stopping:       r.stopping,
		Forced:         c.ForceNewCluster,
		Lax:            c.LaxReconfig,
		MaxLearners:    c.MaxLearners,
		RequestTimeout: c.RequestTimeout,
		TickInterval:   c.TickInterval,
		Logger:         c.Logger,
	})
	r.Alarms = alarms.New(alarms.Options{
		MemberID:       r.memberID,
		Pipeline:       r,
		Membership:     r.roster,
		Damage:         r.damage,
		Trust:          &r.trust,
		RequestTimeout: c.RequestTimeout,
		TickInterval:   c.TickInterval,
		Logger:         c.Logger,
	}, machine.Alarms())
	r.API = level.New(r, machine.Versions(), c.Logger)
	r.Source = source.New(source.Options{
		Pipeline: r,
		RaftLog:  r.raftLog,
		Current:  r.current,
		Force:    r.Members,
	}, machine.Lineage())
	r.Times = revtime.New(r, r.Access, c.Clock)
	r.lessor = lessor.New(lessor.Options{
		MemberID:           r.memberID,
		Pipeline:           r,
		Raft:               r.node,
		Calls:              r.network,
		Stopping:           r.stopping,
		TickInterval:       c.TickInterval,
		ElectionTimeout:    election,
		CheckpointInterval: c.LeaseCheckpointInterval,
		RequestTimeout:     c.RequestTimeout,
		Logger:             c.Logger,
	})
	r.Leases = lessor.NewLeases(r.lessor, r, r.Access)
	r.gets = gets.New(gets.Options{Ready: r.readyForGets, Queue: r.queue})
	r.through = append(r.node.Stages(), r.answers)
	r.audit = audit.New(audit.Options{
		MemberID:                 r.memberID,
		Pipeline:                 r,
		Alarms:                   r.Alarms,
		Raft:                     r.node,
		Calls:                    r.network,
		HandOver:                 r.Leadership.HandOver,
		Ready:                    r.ready,
		Stopping:                 r.stopping,
		CorruptCheckInterval:     c.CorruptCheckInterval,
		CompactHashCheckInterval: c.CompactHashCheckInterval,
		ElectionTimeout:          election,
		NoInitialCorruptCheck:    c.NoInitialCorruptCheck,
		Logger:                   c.Logger,
	})
	r.truncate = truncate.New(truncate.Options{
		MemberID:               r.memberID,
		RaftLog:                r.raftLog,
		Current:                r.current,
		Trail:                  r.trail,
		Raft:                   r.node,
		Membership:             r.roster,
		Sender:                 r.senderOrNil(),
		Hold:                   c.Hold,
		Gauge:                  r.gauge,
		SnapshotCatchUpEntries: c.SnapshotCatchUpEntries,
		CatchUpBytes:           c.CatchUpBytes,
		MaxCatchUpBytes:        c.MaxCatchUpBytes,
		SnapshotBytes:          c.SnapshotBytes,
		Logger:                 c.Logger,
	})
	r.monitor = space.NewMonitor(space.MonitorOptions{
		MemberID:  r.memberID,
		Room:      r.space,
		Alarms:    r.Alarms,
		Damage:    r.damage,
		RaftLog:   r.raftLog,
		Truncator: r.truncate,
	})
	r.hub = watch.New(r.current, c.Watch)
	r.installer = install.New(install.Options{
		Current:  r.current,
		Receiver: r.receiver,
		Place:    c.place(),
		History: c.historyOptions(wal.Identity{ClusterID: r.clusterID,
			MemberID: r.memberID}),
		Load: func(log *history.Log) (*handle.Handle, *fsm.Machine, error) {
			return openStore(c, r.memberID, log)
		},
		Stall:     r.stall,
		Applied:   r.applied,
		Committed: r.committed,
		Stopping:  r.stopping,
		Logger:    c.Logger,
	})
	r.applier.Init(apply.Options{
		MemberID:       r.memberID,
		Raft:           r.node,
		Queue:          r.queue,
		Subscribers:    r.subscribers(r.hub),
		Answers:        r.answers,
		Applied:        r.applied,
		Timings:        r.timings,
		Rights:         r.Access,
		Contacts:       r.contacts,
		Force:          r.Members,
		Installer:      r.installer,
		Stall:          r.stall,
		MaxBatchBytes:  c.MaxBatchBytes,
		RequestTimeout: c.RequestTimeout,
		Stopping:       r.stopping,
	}, machine, at)
	return nil
}

// assembleDisk makes the parts that watch the disk, and the room on it.
func (r *Replica) assembleDisk(h *handle.Handle) {
	c := &r.cfg
	r.damage = damage.New(c.Logger)
	r.current = handle.NewCurrent(h, r.damage, r.stopping)
	r.custody = custody.New(custody.Options{RaftLog: r.raftLog, Current: r.current, Lock: c.Lock,
		Logger: c.Logger})
	r.gauge = freespace.New(c.FS, c.HistoryDir, c.WALDir)
	r.space = space.NewRoom(space.RoomOptions{
		Current:        r.current,
		RaftLog:        r.raftLog,
		Custody:        r.custody,
		Gauge:          r.gauge,
		QuotaBytes:     c.QuotaBytes,
		Ready:          r.ready,
		Stopping:       r.stopping,
		RequestTimeout: c.RequestTimeout,
	})
	r.stall = space.NewStall(c.Logger)
	if c.ScrubBytesPerSecond > 0 {
		r.scrubber = damage.NewScrubber(damage.ScrubberOptions{
			Current:        r.current,
			Places:         r.damage,
			BytesPerSecond: c.ScrubBytesPerSecond,
			Pause:          c.ScrubPause,
			Logger:         c.Logger,
		})
	}
}

// Start lets the member take part in the cluster. It is called once.
func (r *Replica) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	if r.network != nil {
		r.network.SetMembers(r.applied.Load(), r.roster.State())
	}
	r.line.Start()
	r.node.Start()
	for _, run := range r.duties() {
		r.background.Go(func() { run(ctx) })
	}
}

// duties lists the background work. It starts after the apply goroutine, and ends after it.
func (r *Replica) duties() []func(context.Context) {
	list := []func(context.Context){r.runKeeper, r.orFail(r.truncate.Run), r.announceMember,
		r.orFail(r.monitor.Run), r.lessor.Run, r.API.Run, r.gets.Run}
	if r.cfg.JWT == nil {
		list = append(list, r.Access.Run)
	}
	if r.network != nil {
		list = append(list, r.audit.Run)
		if !r.cfg.NoInitialElectionTickAdvance {
			list = append(list, r.Leadership.AdvanceElection)
		}
	}
	if r.scrubber != nil {
		list = append(list, r.scrubber.Run)
	}
	return list
}

// orFail returns a duty whose error ends the member.
func (r *Replica) orFail(run func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		if err := run(ctx); err != nil {
			r.fail(err)
		}
	}
}

// Ready is closed when the member serves: it has served a linearizable read to itself, and the
// cluster has its name and client URLs.
func (r *Replica) Ready() <-chan struct{} { return r.ready }

// Failed receives the error that ended the member, if there is one. Stop the member then: it
// acknowledges nothing more.
func (r *Replica) Failed() <-chan error { return r.failed }

// Stopping is closed when the member accepts no more requests.
func (r *Replica) Stopping() <-chan struct{} { return r.stopping }

// fail ends the work of the member. Requests under way get no result.
func (r *Replica) fail(err error) {
	r.failing.Do(func() {
		r.cfg.Logger.Error("the member has failed", slog.Any("error", err))
		r.refuseRequests()
		r.queue.Abandon(kv.ErrStopped)
		r.failed <- err
	})
}

// refuseRequests rejects requests from now on.
func (r *Replica) refuseRequests() {
	r.halt.Do(func() { close(r.stopping) })
}

// Stop ends the member. New requests are rejected at once; those under way get their result, or
// kv.ErrStopped when ctx ends before. The parts are closed in the reverse order of their
// dependence. The error comes from the log or the store, which may still be opened again: all
// acknowledged writes are in the log.
func (r *Replica) Stop(ctx context.Context) error {
	r.stop.Do(func() {
		r.stopErr = r.shutDown(ctx)
		close(r.closed)
	})
	<-r.closed
	return r.stopErr
}

func (r *Replica) shutDown(ctx context.Context) error {
	// No more requests are accepted.
	r.refuseRequests()
	idle := r.queue.Close(kv.ErrStopped)
	if r.cancel != nil {
		select {
		case <-idle:
		case <-ctx.Done():
		case <-r.node.Failed():
		}
	}
	r.queue.Abandon(kv.ErrStopped)
	// The node first: without it nothing is committed, and no read gets a commit index. Entries
	// that it has handed out are still applied.
	r.node.Stop()
	r.ticker.Stop()
	if r.cancel != nil {
		r.installer.Close()
		// The duties use the log and the store.
		r.cancel()
		r.background.Wait()
		select {
		case err := <-r.applier.Failed():
			r.fail(err)
		default:
		}
	}
	r.line.Close()
	r.custody.Close()
	r.applied.Close(kv.ErrStopped)
	r.sender.Close()
	r.receiver.Close()
	r.errands.close()
	// All that was applied is in the queues of the watchers; the services have ended their streams
	// before.
	r.hub.Close()
	h := r.current.Load()
	h.Store.Close()
	d := disk{log: r.raftLog, store: h.Log}
	return d.close()
}

// TimeoutCause returns the error of a request that began at a time and has had no result for too
// long.
func (r *Replica) TimeoutCause(begun time.Time) error { return r.contacts.TimeoutCause(begun) }

// Leave rejects the requests of clients and ends those that wait, because this member was removed:
// they get no outcome here any more. It goes on with its part in raft, which the others may need.
func (r *Replica) Leave() {
	r.refuseRequests()
	r.queue.Abandon(kv.ErrStopped)
}
