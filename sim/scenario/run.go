package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"vigil/internal/kv"
	"vigil/sim/check"
	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

const (
	// electionTimeout is that of the members, calmElectionTimeout that of a calm plan.
	electionTimeout, calmElectionTimeout = time.Second, 5 * time.Second
	// catchUp bounds the time in which the members and watchers must have everything after the work
	// has ended.
	catchUp = 60 * time.Second
	// searching bounds the search for an order of the operations on one key.
	searching = time.Minute
	// peerPort is the port at which members listen for others, if none moves.
	peerPort = 2380
	// progress is the interval of progress notifications, calmProgress that of a calm plan.
	progress, calmProgress = time.Second, 20 * time.Second
)

// Result is the outcome of a run.
type Result struct {
	Plan       Plan
	Violations check.Violations
	// At is the simulated time at which the first violation was noticed, and Line that line of the
	// trace.
	At         time.Duration
	Line       uint64
	Hash       string
	Simulated  time.Duration
	Switches   uint64
	Ops, Acked int
	Revisions  int64
	Events     int // received by watchers
}

// run is a cluster with its clients in a world.
type run struct {
	plan  Plan
	world *world.World
	// places are the machines that can have a member, members those that have one now.
	places  []*place
	members []*world.Machine
	clients []*world.Machine
	// starts are the times at which the processes of a member started.
	starts map[*world.Machine][]time.Duration
	// damaged members may end by themselves, because of a disk fault.
	damaged map[*world.Machine]bool
	// full disks let the start of a member fail; one that serves must go on. serves are those that
	// have started.
	full, serves map[*world.Machine]bool
	cuts         map[[2]*world.Machine]int
	// hung counts the faults that let a part of the disk of a member hang.
	hung  map[*world.Machine]int
	ends  []func() // of the faults that have begun
	over  bool     // no fault begins any more
	ids   map[string]*world.Machine
	leads string // the id of the member that was elected last
	// elected is called when a member becomes the leader, if it is not nil.
	elected func(*world.Machine)
	// follows is called when a member has learned of another one that leads, if it is not nil.
	follows func(*world.Machine)
	// wrote is called when a write was acknowledged, if it is not nil.
	wrote func()
	// sending is called when a member begins to send a snapshot, if it is not nil.
	sending func(from, to *world.Machine)
	// received is called when a member has received a snapshot, if it is not nil.
	received func(*world.Machine)
	// starting is called when the process of a member has started, if it is not nil.
	starting  func(*world.Machine)
	operators int            // that were started
	changing  *world.Machine // the operator that changes the members
	joined    *world.Machine // the newest member
	// newest is the operation with the newest revision so far. lost is set when the store went back
	// behind it: what follows shows nothing more, and members whose logs contradict each other may
	// exchange messages without a pause.
	newest check.Op
	lost   bool
	// bitsFlipped is set when bits have flipped under files.
	bitsFlipped bool
	moved       bool // a member has another address than at first
	settled     bool // the members at the end are known
	rescued     bool // a cluster was made of one member after the end
	learners    []span
	calm        calm
	busy        []int // how often processes were run in each second

	v        check.Violations
	ops      []check.Op
	all      check.SharedHistory
	watchers map[string]*check.SharedRecord
	numbered map[int]*check.SharedRecord // watchers by their number, if they have one
	// watchers that may lack something of the complete history; nil before it is complete
	late []*check.SharedRecord
	// compactions are those that were requested.
	compactions check.Compactions
	final       int64
	probed      time.Duration // when a write without the library succeeded first after the faults
	working     int           // processes of clients whose work has not ended
	closing     bool          // processes are requested to stop
	hashes      []setup.Hash
	statuses    []setup.Status
	// only is the only endpoint of a watcher that has one, by its name.
	only   map[string]string
	events int
	work   work
}

// Run carries out a plan. A non-nil trace receives a line for each event.
func Run(g *world.Guest, p Plan, trace io.Writer) Result {
	r := &run{plan: p, world: world.New(g, p.Seed, trace),
		starts: map[*world.Machine][]time.Duration{}, damaged: map[*world.Machine]bool{},
		full: map[*world.Machine]bool{}, serves: map[*world.Machine]bool{},
		cuts: map[[2]*world.Machine]int{}, hung: map[*world.Machine]int{},
		ids: map[string]*world.Machine{}, watchers: map[string]*check.SharedRecord{},
		numbered: map[int]*check.SharedRecord{}, only: map[string]string{}}
	r.all.H = &check.History{Base: 1, Start: map[string]check.Item{}}
	defer r.world.Close()
	r.world.Reported, r.world.Exited, r.world.Printed = r.reported, r.exited, r.printed
	for n := range p.Places {
		m := r.world.Machine(fmt.Sprintf("m%d", n), netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}))
		r.places = append(r.places,
			&place{Machine: m, ports: []int{peerPort}, empty: n >= p.Members})
		if n < p.Members {
			r.members = append(r.members, m)
		}
	}
	for n := range p.Clients {
		r.clients = append(r.clients,
			r.world.Machine(fmt.Sprintf("c%d", n), netip.AddrFrom4([4]byte{10, 0, 1, byte(n + 1)})))
	}
	for _, m := range r.members {
		r.restart(m)
	}
	stop := p.Faulty + p.recovery()
	for n, m := range r.clients {
		r.startClient(n, m, stop)
	}
	for _, f := range p.Faults {
		r.world.At(f.At, func() { r.inject(f) })
	}
	r.world.At(p.Faulty, r.heal)
	r.watchWork(stop + catchUp)
	out := Result{Plan: p}
	noticed := func() {
		if len(r.v) > 0 && out.Line == 0 {
			out.At, out.Line = r.world.Now(), r.world.Lines()
		}
	}
	err := r.world.Run(stop+catchUp, func() bool {
		noticed()
		return r.lost || r.complete()
	})
	switch {
	case err != nil:
		r.v.Add("%v", err)
	case !r.lost && !r.complete():
		r.v.Add("%v after the last fault has ended: %s", p.recovery()+catchUp, r.missing())
	}
	r.disturb()
	if len(r.v) == 0 {
		r.stopAll()
	}
	if len(r.v) == 0 && p.Rescue {
		r.rescue()
	}
	r.checkWork()
	r.checkIdle()
	r.judge()
	noticed()
	out.Violations, out.Simulated, out.Switches = r.v, r.world.Now(), r.world.Switches()
	out.Ops, out.Revisions, out.Events = len(r.ops), r.all.Last(), r.events
	for n := range r.ops {
		if r.ops[n].Outcome == check.Acked {
			out.Acked++
		}
	}
	out.Hash = r.world.Hash()
	return out
}

// inject begins a fault and plans its end.
func (r *run) inject(f Fault) {
	r.world.Note(nil, "fault: %v", f)
	r.calm.active++
	end := faults[f.Kind](r, f, rand.New(rand.NewPCG(f.Seed, 2)))
	ended := false
	once := func() {
		if !ended {
			ended = true
			end()
			r.calm.active--
			r.disturb()
		}
	}
	r.disturb()
	r.ends = append(r.ends, once)
	r.world.After(f.For, once)
}

// heal ends all faults.
func (r *run) heal() {
	r.world.Note(nil, "all faults end")
	r.over = true
	for _, end := range r.ends {
		end()
	}
	for _, m := range r.members {
		r.restart(m)
	}
	r.settle()
	r.probe()
}

// restart starts the process of a member, if none runs.
func (r *run) restart(m *world.Machine) {
	p := r.place(m)
	if m.Running() || p.empty {
		return
	}
	p.started = true
	initial, state := p.initial, "existing"
	if initial == "" {
		state = "new"
		var first []string
		for _, o := range r.places[:r.plan.Members] {
			first = append(first, o.Name+"="+o.peerURL(peerPort))
		}
		initial = strings.Join(first, ",")
	}
	if p.forced {
		state = "new"
	}
	p.given = initial
	var listen []string
	for _, port := range p.ports {
		listen = append(listen, p.peerURL(port))
	}
	r.starts[m], r.serves[m] = append(r.starts[m], r.world.Now()), false
	m.Start("member", encode(setup.Member{Name: m.Name, StopAddress: stopAddress(m),
		ClientURL: "http://" + endpoint(m), PeerURL: listen[0], ListenPeerURLs: listen,
		InitialCluster: initial, InitialClusterState: state,
		SnapshotCount: r.plan.SnapshotCount, SnapshotCatchUpEntries: 10,
		ProgressInterval: int64(r.plan.progress()), LaxReconfig: r.plan.LaxReconfig,
		ForceNewCluster:   p.forced,
		ElectionTimeout:   int64(r.plan.election()),
		HeartbeatInterval: int64(r.plan.election()) / int64(r.plan.heartbeats()),
		QuotaBytes:        r.plan.QuotaBytes, ScrubPause: int64(r.plan.ScrubPause),
		CorruptCheckInterval: int64(r.plan.CorruptCheckInterval), SegmentBytes: r.plan.SegmentBytes,
		HistoryBytes: cmp.Or(r.plan.HistoryBytes, r.plan.SegmentBytes)}))
	r.disturb()
	if r.starting != nil {
		r.starting(m)
	}
}

func (r *run) startClient(n int, m *world.Machine, stop time.Duration) {
	c := setup.Client{Seed: r.plan.Seed + uint64(n)<<32, First: 100 * n, Workers: r.plan.Workers,
		Readers: len(r.places), Watchers: r.plan.Watchers, Compact: n == 0,
		Address: m.Addr.String(), Endpoints: r.endpoints(), Think: int64(r.plan.Think),
		Stop: int64(stop), Work: r.plan.Work, Users: r.plan.users(), QuotaBytes: r.plan.QuotaBytes,
		Last: n == 0, StopAddress: stopAddress(m), Calm: r.plan.Calm, Large: r.plan.Large,
		Healed: int64(r.plan.Faulty), Wave: int64(r.plan.Wave), Lull: int64(r.plan.Lull)}
	m.Start("client", encode(c))
	r.working++
}

func endpoint(m *world.Machine) string { return fmt.Sprintf("%v:2379", m.Addr) }

func endpoints(machines []*world.Machine) (out []string) {
	for _, m := range machines {
		out = append(out, endpoint(m))
	}
	return out
}

// endpoints returns all addresses at which there may be a member.
func (r *run) endpoints() (out []string) {
	for _, p := range r.places {
		out = append(out, endpoint(p.Machine))
	}
	return out
}

func encode(c any) string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return string(b)
}

var (
	ready   = regexp.MustCompile(`ready to serve client requests.* member-id=([0-9a-f]+)`)
	elected = regexp.MustCompile(`raft leader changed.* to=([0-9a-f]+)`)
	sending = regexp.MustCompile(`msg="sending a snapshot" .*remote-peer-id=([0-9a-f]+)`)
	// peerURL is the URL of a member in the refusal of a list of members.
	peerURL = regexp.MustCompile(`[0-9a-f]=(http://[0-9.]+:[0-9]+)`)
	// known is the refusal to join as a member that has lost its data.
	known = regexp.MustCompile(`^member ([0-9a-f]+) of cluster [0-9a-f]+ has been started before`)
)

// corrupt is the error of the API for damaged data.
const corrupt = "etcdserver: corrupt cluster"

// printed follows the log of the members.
func (r *run) printed(m *world.Machine, line []byte) {
	if s := ready.FindSubmatch(line); s != nil {
		r.ids[string(s[1])], r.serves[m] = m, true
	}
	if s := elected.FindSubmatch(line); s != nil {
		r.leads = string(s[1])
		switch leads := r.ids[r.leads] == m; {
		case leads && r.elected != nil:
			r.world.After(0, func() {
				if r.elected != nil {
					r.elected(m)
				}
			})
		case !leads && r.follows != nil:
			r.world.After(0, func() {
				if r.follows != nil {
					r.follows(m)
				}
			})
		}
	}
	if s := sending.FindSubmatch(line); s != nil && r.sending != nil {
		id, _ := strconv.ParseUint(string(s[1]), 16, 64)
		for _, p := range r.places {
			if p.id == id {
				r.world.After(0, func() {
					if r.sending != nil {
						r.sending(m, p.Machine)
					}
				})
			}
		}
	}
	if r.received != nil && bytes.Contains(line, []byte(`msg="received a snapshot"`)) {
		r.world.After(0, func() {
			if r.received != nil {
				r.received(m)
			}
		})
	}
	if p := r.place(m); p != nil &&
		bytes.HasPrefix(line, []byte("cannot fetch cluster info from peer urls")) {
		p.alone = true
	} else if p != nil &&
		bytes.HasPrefix(line, []byte("--initial-cluster does not match cluster")) {
		r.refused(p, line)
	} else if s := known.FindSubmatch(line); p != nil && s != nil {
		// A member that has not applied the replacement yet names the one that was there before.
		id, _ := strconv.ParseUint(string(s[1]), 16, 64)
		p.outdated = slices.Contains(p.former, id)
	}
	for _, bad := range []string{"panic:", "fatal error:", "level=ERROR msg=\"inconsistent"} {
		if strings.HasPrefix(string(line), bad) {
			r.v.Add("%s: %s", m.Name, line)
		}
	}
	// A member may end because its syncs fail. Nothing but flipped bits explains that it reports
	// damage.
	if p := r.place(m); p != nil && !p.flipped && !bytes.HasPrefix(line, []byte("level=")) &&
		bytes.Contains(line, []byte(kv.ErrCorrupt.Error())) {
		r.v.Add("%s: %s", m.Name, line)
	}
}

// leader returns the member that was elected last, as far as is known.
func (r *run) leader() *world.Machine {
	if m := r.ids[r.leads]; slices.Contains(r.members, m) {
		return m
	}
	return r.members[0]
}

// exited handles a process that ended by itself.
func (r *run) exited(m *world.Machine, err error) {
	p := r.place(m)
	if p != nil {
		r.disturb()
	}
	switch {
	case err == nil && (r.closing || m.Name == probeName):
		return
	case m == r.changing && err == nil:
		r.changed()
		return
	case p != nil && err == nil: // it says that it was removed
		p.empty = true
		if !p.removed {
			p.ended = r.world.Now()
		}
		return
	case p != nil && (p.flipped || p.alone || p.outdated):
		p.alone, p.outdated = false, false
	case !r.damaged[m] && (r.serves[m] || !r.full[m]):
		r.v.Add("%s ended by itself at %v: %v", m.Name, r.world.Now(), err)
	}
	switch {
	case p == nil:
	case p.flipped:
		r.world.After(5*time.Second, func() { r.restart(m) })
	default:
		r.world.After(time.Second, func() { r.restart(m) })
	}
}

// reported receives what a process of clients saw.
func (r *run) reported(_ *world.Machine, b []byte) {
	var p setup.Report
	if err := json.Unmarshal(b, &p); err != nil {
		r.v.Add("report: %v", err)
		return
	}
	switch {
	case p.Op != nil:
		r.addOp(*p.Op)
	case p.Lease != nil:
		r.world.Note(nil, "%v", p.Lease)
		r.work.addLease(*p.Lease)
	case p.Lock != nil:
		r.world.Note(nil, "%v", p.Lock)
		r.work.locks = append(r.work.locks, *p.Lock)
	case p.Alarm != nil:
		r.world.Note(nil, "%v", p.Alarm)
		r.work.alarms = append(r.work.alarms, *p.Alarm)
	case p.Permit != nil:
		r.world.Note(nil, "%v", p.Permit)
		r.work.permits = append(r.work.permits, *p.Permit)
	case p.Access != nil:
		r.world.Note(nil, "%v", p.Access)
		r.work.accesses = append(r.work.accesses, *p.Access)
	case p.Sight != nil:
		r.world.Note(nil, "%v", p.Sight)
		r.work.sights = append(r.work.sights, *p.Sight)
	case p.Watcher != nil:
		r.addMessage(p.Watcher, p.Message)
	case p.Message != nil:
		r.addMessages(p.Receivers, *p.Message)
	case p.Canceled != 0:
		r.numbered[p.Canceled].R.Partial = true
	case p.Compact != 0:
		r.compactions = append(r.compactions, check.Compaction{At: r.world.Now(), Rev: p.Compact})
	case p.Failed != "":
		// A member does not serve its damaged data.
		if !r.bitsFlipped || !strings.Contains(p.Failed, corrupt) {
			r.v.Add("%s", p.Failed)
		}
	case p.Hash != nil:
		r.hashes = append(r.hashes, *p.Hash)
	case p.Probed != 0:
		r.probed = time.Duration(p.Probed)
	case p.Status != nil:
		r.statuses = append(r.statuses, *p.Status)
	case p.Ended:
		r.working--
	case p.Rescued:
		r.rescued = true
	case p.Final != 0:
		r.final = p.Final
	case p.Members != nil:
		r.world.After(0, func() { r.listed(p.Members) }) // not within the process that reports
	case p.Moving != "":
		r.world.After(0, func() { r.moving(p.Moving) })
	}
}

// addOp adds an operation. Operations at one member know which of its processes answered.
func (r *run) addOp(o check.Op) {
	r.world.Note(nil, "%v", &o)
	if o.Member >= 0 {
		starts := r.starts[r.places[o.Member].Machine]
		o.Run = len(starts)
		if len(starts) == 0 || starts[len(starts)-1] >= o.Call {
			o.Run = -1 - len(r.ops) // the process changed meanwhile: comparable with no other
		}
	}
	r.ops = append(r.ops, o)
	if o.Outcome == check.Acked && o.Linearizable() {
		if o.Rev < r.newest.Rev && o.Call > r.newest.Ret {
			r.lost = true
			r.v.Add("stale: revision %d was known at %v, by %v: %v", r.newest.Rev,
				r.newest.Ret, &r.newest, &o)
		}
		if o.Rev > r.newest.Rev {
			r.newest = o
		}
	}
	if o.Outcome == check.Acked && o.Wrote() && r.wrote != nil {
		r.wrote()
	}
}

// judge checks everything that was recorded.
func (r *run) judge() {
	slices.SortStableFunc(r.ops, func(a, b check.Op) int { return int(a.Call - b.Call) })
	h := r.all.H
	if r.final != 0 && h.Last() > r.final {
		h = r.all.Take(r.final)
	}
	h.Notice(r.moments())
	r.v = append(r.v, check.Check(h, r.ops, searching)...)
	r.v = append(r.v, check.CheckLocal(r.ops)...)
	r.judgeErrors()
	r.judgeWork(h)
	r.judgeCalm(h)
	t := h.Timeline()
	for _, name := range slices.Sorted(maps.Keys(r.watchers)) {
		record := r.watchers[name].Take(h.Last())
		record.Partial = record.Partial || r.final == 0 || r.left(name)
		r.v = append(r.v, check.CheckWatch(h, t, &record, r.compactions)...)
	}
	r.checkEqual()
	r.checkLearners()
	r.checkRecovery()
}
