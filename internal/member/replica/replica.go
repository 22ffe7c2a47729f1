package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/access"
	"vigil/internal/member/replica/audit"
	"vigil/internal/member/replica/lessor"
	"vigil/internal/member/replica/position"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/member/replica/timekeeper"
	"vigil/internal/member/replica/timing"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/state/lineage"
	"vigil/internal/store/wal"
	"vigil/internal/store/watch"
)

// Replica is one member.
type Replica struct {
	cfg                 Config
	clusterID, memberID uint64
	// network reaches the other members; nil if there never are any.
	network Network

	raftLog *wal.WAL
	// current is the store handle. The apply goroutine replaces it when it installs a snapshot.
	current atomic.Pointer[handle]
	hub     *watch.Hub
	node    *raftnode.Node
	queue   *proposal.Queue
	applier applier
	waits   position.Waits
	trail   *position.Trail
	space   space
	// audit compares this member with others.
	audit *audit.Auditor
	trust audit.Trust
	// proposals counts applied requests.
	proposals proposals
	timings   *timing.Recorder
	// sender and receiver are the two ends of snapshots.
	sender   *transfer.Sender
	receiver *transfer.Receiver
	// backups holds a token for each backup under way.
	backups chan struct{}
	// lessor counts down the TTLs of leases while this member leads.
	lessor *lessor.Lessor
	// Leases serves clients that ask for leases.
	Leases *Leases
	// Starter serves requests on goroutines that must not wait.
	Starter *Starter

	// Access decides what clients may do, and serves users and roles.
	Access *access.Control
	// Members serves and changes the membership, Leadership moves it between members.
	Members    *Members
	Leadership *Leadership
	// Alarms serves and changes the alarms of the cluster.
	Alarms *Alarms
	// API serves and changes the level of the API that the cluster speaks.
	API *APILevel
	// Times knows when revisions were made.
	Times *timekeeper.Timekeeper
	// Source is what an archive is made of.
	Source Source
	// lineage are the claims of terms as of the applied position. Stored by the apply goroutine, before applied.
	lineage atomic.Pointer[lineage.State]
	// applied is the position whose results can be read and are published.
	applied atomic.Uint64

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

// New makes a member of its data. Start lets it take part in the cluster. network reaches the other members; nil only if there
// never are any. The data belong to the member, and are closed if New fails.
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

// assemble connects the parts above the disk.
func (r *Replica) assemble(d *Data) (err error) {
	c, machine, at := &r.cfg, d.machine, d.handle.log.Applied()
	r.current.Store(d.handle)
	r.Members, r.API, r.Leadership = newMembers(r), &APILevel{r: r}, &Leadership{r}
	r.Members.state.Store(machine.Members())
	last, err := r.raftLog.LastIndex()
	if err != nil {
		return fmt.Errorf("replica: %w", err)
	}
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
	r.Alarms, r.Source = &Alarms{r: r}, Source{r}
	r.Alarms.follow(machine.Alarms())
	r.API.follow(machine.Versions())
	r.space.init(r)
	r.timings = timing.New(timing.Options{WarnApply: c.WarnApply, NoteSteps: c.NoteSteps, Tracer: c.Tracer, Logger: c.Logger})
	r.applied.Store(at.Index)
	r.queue = proposal.New(proposal.Options{
		Member:           r.memberID,
		MaxGroupBytes:    c.MaxGroupBytes,
		MaxGroupRequests: c.MaxGroupRequests,
		MaxPendingBytes:  c.MaxPendingBytes,
		MaxRequestBytes:  c.MaxRequestBytes,
		Space:            &r.space,
	})
	// The tickers of a member begin together, also that of the lessor, so that a member at rest is woken once for all of them.
	r.Ticking = time.Now()
	r.ticker, r.rounds = time.NewTicker(c.TickInterval), time.NewTicker(c.TickInterval)
	snapshots := r.transferOptions()
	r.sender = transfer.NewSender(snapshots)
	r.node, err = raftnode.New(raftnode.Config{
		ID:             r.memberID,
		Log:            guardedLog{r.raftLog, &r.space.custody},
		ConfState:      r.Members.confState(machine.ConfState()),
		Applied:        at.Index,
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
	r.lessor = lessor.New(lessor.Options{
		MemberID:           r.memberID,
		Pipeline:           r,
		Raft:               r.node,
		Calls:              r.network,
		Stopping:           r.stopping,
		TickInterval:       c.TickInterval,
		ElectionTimeout:    time.Duration(c.ElectionTicks) * c.TickInterval,
		CheckpointInterval: c.LeaseCheckpointInterval,
		RequestTimeout:     c.RequestTimeout,
		Logger:             c.Logger,
	})
	r.Times = timekeeper.New(timekeeper.Options{
		Pipeline:        r,
		Raft:            r.node,
		Access:          r.Access,
		CompactRevision: func() int64 { return r.handle().store.CompactRevision() },
		Interval:        c.TimeInterval,
		Clock:           c.Clock,
		RequestTimeout:  c.RequestTimeout,
		Stopping:        r.stopping,
		Logger:          c.Logger,
	}, machine.Times())
	r.lineage.Store(machine.Lineage())
	r.Leases, r.Starter = &Leases{r}, newStarter(r)
	r.audit = audit.New(audit.Options{
		MemberID:            r.memberID,
		Pipeline:            r,
		Alarms:              r.Alarms,
		Raft:                r.node,
		Calls:               r.network,
		HandOver:            r.Leadership.HandOver,
		Ready:               r.ready,
		Stopping:            r.stopping,
		Interval:            c.CompareInterval,
		CompactionsInterval: c.CompareCompactionsInterval,
		ElectionTimeout:     time.Duration(c.ElectionTicks) * c.TickInterval,
		NoInitialCheck:      c.NoInitialCheck,
		Logger:              c.Logger,
	})
	r.hub = watch.New(source{r}, c.Watch)
	r.applier.init(r, machine)
	r.sender.SetRaft(r.node)
	r.receiver = transfer.NewReceiver(snapshots, r.node)
	r.trail = position.NewTrail(at.Index, c.CatchUpBytes/16, position.TrailBounds{Requests: c.SnapshotCount, Bytes: c.SnapshotBytes})
	return nil
}

// Start lets the member take part in the cluster. It is called once.
func (r *Replica) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	if r.network != nil {
		r.network.SetMembers(r.applied.Load(), r.Members.state.Load())
	}
	r.node.Start()
	go r.applier.run()
	for _, run := range r.duties() {
		r.background.Go(func() { run(ctx) })
	}
}

// duties lists the background work. It starts after the apply goroutine, and ends after it.
func (r *Replica) duties() []func(context.Context) {
	list := []func(context.Context){r.keep, r.truncate, r.publish, r.space.monitor, r.lessor.Run, r.API.lead, r.Starter.gets.Run}
	if r.cfg.JWT == nil {
		list = append(list, r.Access.Run)
	}
	if r.cfg.TimeInterval > 0 {
		list = append(list, r.Times.Run)
	}
	if r.network != nil {
		list = append(list, r.audit.Run)
		if !r.cfg.NoElectionAdvance {
			list = append(list, r.Leadership.advanceElection)
		}
	}
	if r.cfg.ScrubBytesPerSecond > 0 {
		list = append(list, r.space.scrub)
	}
	return list
}

// Ready is closed when the member serves: it has served a linearizable read to itself, and the cluster has its name and
// client URLs.
func (r *Replica) Ready() <-chan struct{} { return r.ready }

// Failed receives the error that ended the member, if there is one. Stop the member then: it acknowledges nothing more.
func (r *Replica) Failed() <-chan error { return r.failed }

// Stopping is closed when the member accepts no more requests.
func (r *Replica) Stopping() <-chan struct{} { return r.stopping }

// fail ends the work of the member. Requests under way get no result.
func (r *Replica) fail(err error) {
	r.failing.Do(func() {
		r.cfg.Logger.Error("the member has failed", slog.Any("error", err))
		r.refuse()
		r.queue.Abandon(kv.ErrStopped)
		r.failed <- err
	})
}

func (r *Replica) refuse() {
	r.halt.Do(func() { close(r.stopping) })
}

// Stop ends the member. New requests are rejected at once; those under way get their result, or kv.ErrStopped when ctx ends
// before. The parts are closed in the reverse order of their dependence. The error is that of the log or the store, which
// may still be opened again: all that was acknowledged is in the log.
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
	r.refuse()
	idle := r.queue.Close(kv.ErrStopped)
	if r.cancel != nil {
		select {
		case <-idle:
		case <-ctx.Done():
		case <-r.node.Failed():
		}
	}
	r.queue.Abandon(kv.ErrStopped)
	// The node first: without it nothing is committed, and no read gets a commit index. Entries that it has handed out are
	// still applied.
	r.node.Stop()
	r.ticker.Stop()
	if r.cancel != nil {
		<-r.applier.done
		r.applier.removal.Wait()
		// The duties use the log and the store.
		r.cancel()
		r.background.Wait()
	}
	r.waits.Close(kv.ErrStopped)
	r.sender.Close()
	r.receiver.Close()
	r.errands.end()
	// All that was applied is in the queues of the watchers; the services have ended their streams before.
	r.hub.Close()
	h := r.handle()
	h.store.Close()
	d := disk{log: r.raftLog, store: h.log}
	return d.close()
}

// ctxError returns the error of a wait that ctx has ended.
func (r *Replica) ctxError(err error, begun time.Time) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return r.TimeoutCause(begun)
	}
	return err
}

// TimeoutCause returns the error of a request that began at a time and has had no result for too long.
func (r *Replica) TimeoutCause(begun time.Time) error {
	st := r.node.Status()
	// The election before the present leader began about two election timeouts before it.
	election := time.Duration(r.cfg.ElectionTicks) * r.cfg.TickInterval
	switch {
	case st.Lead == 0:
	case begun.Before(st.LeadSince) && begun.After(st.LeadSince.Add(-2*election)):
		return kv.ErrTimeoutLeaderFailure
	case st.Lead == r.memberID:
		if members := r.Members.state.Load().Members(); r.Members.connected(members, begun) < len(members)/2+1 {
			return kv.ErrTimeoutConnectionLost
		}
	case !r.Members.connectedTo(st.Lead, begun):
		return kv.ErrTimeoutConnectionLost
	}
	return kv.ErrTimeout
}
