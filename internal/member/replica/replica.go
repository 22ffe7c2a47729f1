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
	"vigil/internal/member/replica/audit"
	"vigil/internal/member/replica/lessor"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/wal"
	"vigil/internal/store/watch"
)

// Replica is one member.
type Replica struct {
	cfg                 Config
	clusterID, memberID uint64

	raftLog *wal.WAL
	// home is the store as it is until a snapshot replaces it. Only the apply goroutine does.
	home    atomic.Pointer[home]
	hub     *watch.Hub
	node    *raftnode.Node
	queue   *queue
	applier applier
	readers readers
	trail   trail
	space   space
	// audit compares this member with others.
	audit *audit.Auditor
	trust trust
	// proposals counts what was applied.
	proposals proposals
	timings   timings
	// sending and receiving are the two ends of snapshots.
	sending sending
	// backups holds a token for each backup under way.
	backups   chan struct{}
	receiving receiving
	// lessor counts down the TTLs of leases while this member leads.
	lessor *lessor.Lessor
	// Leases serves clients that ask for leases.
	Leases *Leases

	// auth is who may do what, and the tokens of this member's clients.
	auth authority

	// members is what the apply goroutine has made of the membership.
	members atomic.Pointer[cluster.State]
	// Alarms serves and changes the alarms of the cluster.
	Alarms *Alarms
	// versions is which level of the API the cluster speaks, likewise.
	versions atomic.Pointer[kv.Versions]
	// applied is the position whose outcome is readable and published.
	applied atomic.Uint64

	forcing  atomic.Bool   // the member is becoming the only one, see force.go
	removed  chan struct{} // closed when the member has applied its own removal
	told     chan struct{} // closed when others say that it was removed
	toldOnce sync.Once
	confs    chan struct{} // has room for one: a change of the membership is under way
	ready    chan struct{} // closed when the member serves
	stopping chan struct{} // closed when Stop begins, or the member fails
	halt     sync.Once
	failed   chan error // has room for one
	failing  sync.Once
	closed   chan struct{} // closed when Stop is done
	stop     sync.Once
	stopErr  error

	cancel     context.CancelFunc // ends background work
	background sync.WaitGroup     // keeper, publisher, truncator, guard, lessor, scrubber, comparer
	errands    errands
	ticker     *time.Ticker
}

// Open opens what the member has on disk, makes it where there is nothing, and rebuilds what lives
// in memory. The member takes part in the cluster from Start on.
func Open(c Config) (*Replica, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.WithDefaults()
	d, err := openDisk(&c)
	if err != nil {
		return nil, err
	}
	r := &Replica{
		backups:  make(chan struct{}, maxBackups),
		cfg:      c,
		raftLog:  d.log,
		ready:    make(chan struct{}),
		stopping: make(chan struct{}),
		failed:   make(chan error, 1),
		closed:   make(chan struct{}),
	}
	r.clusterID, r.memberID = d.store.Identity()
	if err := r.assemble(d.store); err != nil {
		if h := r.now(); h != nil {
			h.store.Close()
		}
		d.close()
		return nil, err
	}
	return r, nil
}

// assemble puts the parts above the disk together.
func (r *Replica) assemble(log *history.Log) error {
	c := &r.cfg
	h, machine, err := r.build(log)
	if err != nil {
		return err
	}
	r.home.Store(h)
	at := log.Applied()
	r.members.Store(machine.Members())
	if err := r.auth.init(c, machine.Auth()); err != nil {
		return fmt.Errorf("replica: %w", err)
	}
	r.trust.init()
	r.Alarms = &Alarms{r: r}
	r.Alarms.publish(machine.Alarms())
	r.storeVersions(machine.Versions())
	r.space.init()
	r.timings.init()
	r.applied.Store(at.Index)
	r.queue = newQueue(c, r.memberID)
	r.queue.room = func() error { return r.room(0) }
	r.ticker = time.NewTicker(c.TickInterval)
	r.removed, r.told = make(chan struct{}), make(chan struct{})
	r.confs = make(chan struct{}, 1)
	r.node, err = raftnode.New(raftnode.Config{
		ID:            r.memberID,
		Log:           r.raftLog,
		ConfState:     r.confState(machine.ConfState()),
		Applied:       at.Index,
		Ticks:         r.ticker.C,
		TickInterval:  c.TickInterval,
		ElectionTicks: c.ElectionTicks,
		NoPreVote:     c.NoPreVote,
		Proposals:     r.queue,
		Transport:     c.Transport,
		Snapshots:     r.snapshots(),
		Logger:        c.Logger,
		MaxInFlight:   c.MaxInFlight,
	})
	if err != nil {
		r.ticker.Stop()
		return fmt.Errorf("replica: %w", err)
	}
	r.lessor = lessor.New(lessor.Options{
		MemberID:           r.memberID,
		Pipeline:           r,
		Raft:               r.node,
		Calls:              c.Calls,
		Stopping:           r.stopping,
		TickInterval:       c.TickInterval,
		ElectionTimeout:    time.Duration(c.ElectionTicks) * c.TickInterval,
		CheckpointInterval: c.LeaseCheckpointInterval,
		RequestTimeout:     c.RequestTimeout,
		Logger:             c.Logger,
	})
	r.Leases = &Leases{r}
	r.audit = audit.New(audit.Options{
		MemberID:            r.memberID,
		Pipeline:            r,
		Alarms:              r.Alarms,
		Raft:                r.node,
		Calls:               c.SnapshotTransport,
		HandOver:            r.HandOver,
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
	r.sending.init()
	r.receiving.init()
	r.trail.init(at.Index, c)
	return nil
}

// build makes a home of a log, and reads the state machine in it.
func (r *Replica) build(log *history.Log) (*home, *fsm.Machine, error) {
	store, err := mvcc.Open(log, r.cfg.Store)
	if err != nil {
		return nil, nil, fmt.Errorf("replica: %w", err)
	}
	machine, err := fsm.New(log, store)
	if err == nil {
		if level := machine.Members().Level(); level > fsm.Level {
			err = fmt.Errorf("the cluster uses requests of level %d and this version of the program knows %d: run the version that was used before, or a newer one", level, fsm.Level)
		} else if machine.Members().Removed(r.memberID) {
			err = fmt.Errorf("%w: member %x", ErrRemoved, r.memberID)
		} else if _, ok := machine.Members().Member(r.memberID); !ok {
			err = fmt.Errorf("%w: the store belongs to member %x, which is not in its membership", kv.ErrCorrupt, r.memberID)
		}
	}
	if err != nil {
		store.Close()
		return nil, nil, fmt.Errorf("replica: %w", err)
	}
	return newHome(log, store, machine.Leases()), machine, nil
}

// Start lets the member take part. It is called once.
func (r *Replica) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	if n := r.cfg.Peers; n != nil {
		n.SetMembers(r.applied.Load(), r.members.Load())
	}
	r.node.Start()
	go r.applier.run()
	r.background.Go(func() { r.keep(ctx) })
	r.background.Go(func() { r.truncate(ctx) })
	r.background.Go(func() { r.publish(ctx) })
	if !r.cfg.NoElectionAdvance && r.cfg.Peers != nil {
		r.background.Go(func() { r.advanceElection(ctx) })
	}
	r.background.Go(func() { r.guard(ctx) })
	r.background.Go(func() { r.lessor.Run(ctx) })
	r.background.Go(func() { r.followVersion(ctx) })
	if r.cfg.SnapshotTransport != nil {
		r.background.Go(func() { r.audit.Run(ctx) })
	}
	if r.cfg.ScrubBytesPerSecond > 0 {
		r.background.Go(func() { r.scrub(ctx) })
	}
}

// Ready is closed when the member serves: it has served a linearizable read to itself, and the
// cluster knows its name and client URLs.
func (r *Replica) Ready() <-chan struct{} { return r.ready }

// Failed gets the error that ended the member, if one does. It must be stopped then: nothing more is
// acknowledged.
func (r *Replica) Failed() <-chan error { return r.failed }

// Stopping is closed when the member takes nothing more.
func (r *Replica) Stopping() <-chan struct{} { return r.stopping }

// fail ends the member's work. What is under way gets no outcome.
func (r *Replica) fail(err error) {
	r.failing.Do(func() {
		r.cfg.Logger.Error("the member has failed", slog.Any("error", err))
		r.refuse()
		r.queue.abandon(kv.ErrStopped)
		r.failed <- err
	})
}

func (r *Replica) refuse() {
	r.halt.Do(func() { close(r.stopping) })
}

// Stop ends the member. New requests are refused at once; those under way get their outcome, or
// kv.ErrStopped when ctx is done before. The parts are closed in the reverse of the order in which
// they depend on each other. The error is that of the log or the store, which may still be opened
// again: what was acknowledged is in the log.
func (r *Replica) Stop(ctx context.Context) error {
	r.stop.Do(func() {
		r.stopErr = r.shutDown(ctx)
		close(r.closed)
	})
	<-r.closed
	return r.stopErr
}

func (r *Replica) shutDown(ctx context.Context) error {
	// Nothing comes in any more.
	r.refuse()
	idle := r.queue.refuse(kv.ErrStopped)
	if r.cancel != nil {
		select {
		case <-idle:
		case <-ctx.Done():
		case <-r.node.Failed():
		}
	}
	r.queue.abandon(kv.ErrStopped)
	// The node goes first: without it nothing is committed, and no reader learns how far the
	// cluster is. Entries it has given out are still applied.
	r.node.Stop()
	r.ticker.Stop()
	if r.cancel != nil {
		<-r.applier.done
		r.applier.removal.Wait()
		// The background uses log and store.
		r.cancel()
		r.background.Wait()
	}
	r.readers.close(kv.ErrStopped)
	r.sending.end()
	r.receiving.end()
	r.errands.end()
	// Watchers have got everything that was applied into their queues; whoever serves them has
	// let them go before.
	r.hub.Close()
	h := r.now()
	h.store.Close()
	d := disk{log: r.raftLog, store: h.log}
	return d.close()
}

// ctxError says in our words why a wait ended.
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
		if members := r.members.Load().Members(); r.connected(members, begun) < len(members)/2+1 {
			return kv.ErrTimeoutConnectionLost
		}
	case !r.connectedTo(st.Lead, begun):
		return kv.ErrTimeoutConnectionLost
	}
	return kv.ErrTimeout
}
