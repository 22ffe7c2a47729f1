package scenario

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"vigil/sim/scenario/setup"
)

// profile is how plans are drawn that aim at a family of promises. The faults and the work that do
// not matter to it are left out, so that a minute of such a plan costs little and reaches what it
// aims at soon.
type profile struct {
	name, aim string
	// faults are the kinds of faults; a kind that is there twice is drawn twice as often. work are
	// the times of work.
	faults, work []string
	// pace is the mean time between two faults.
	pace time.Duration
	// faulty is how long faults begin, if the caller does not say it.
	faulty time.Duration
	// shape changes a drawn plan, unless it is nil. It adds faults of the kinds of added.
	shape func(p *Plan, rng *rand.Rand)
	added []string
}

// Mixed is the profile of NewPlan, with all faults and work.
const Mixed = "mixed"

// profiles are the others, by family.
var profiles = []profile{
	{name: "reads", aim: "linearizable and serializable reads", faulty: 20 * time.Second,
		pace: 2 * time.Second,
		faults: []string{"late follower", "late follower", "late follower", "slow links", "pause",
			"isolation from members", "one-way partition", "leader transfers"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Workers, p.Watchers, p.Think = 14, 1, 250*time.Millisecond
		}},
	{name: "api", aim: "ranges, transactions, options of watches, errors, mirrors",
		faulty: 20 * time.Second, pace: 5 * time.Second,
		faults: []string{"kill", "broken connections", "leader transfers", "slow links"},
		work:   []string{"bare", "mirrors", "pages", "watch options"},
		shape:  func(p *Plan, _ *rand.Rand) { p.Think = 400 * time.Millisecond }},
	{name: "watch", aim: "watchers that fall behind, resume and are canceled",
		faulty: 40 * time.Second, pace: 4 * time.Second,
		faults: []string{"broken connections", "kill", "pause", "slow links", "isolation",
			"flapping link"}, work: []string{"crowd", "queues"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Workers, p.Watchers, p.Think = 2, 2,
				300*time.Millisecond
		}},
	{name: "leases", aim: "the time of leases and their keys", faulty: 45 * time.Second,
		pace: 4 * time.Second,
		faults: []string{"hits at the end of leases", "hits at the end of leases", "pause",
			"isolation from members", "clock jump", "clock rate", "kill", "slow disk",
			"leader transfers"},
		work: []string{"leases"}, shape: shapeLeases},
	{name: "renewals", aim: "keep-alives of leases that are about to end", faulty: 50 * time.Second,
		pace:   4 * time.Second,
		faults: []string{"slow disks"}, work: []string{"leases"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Clients, p.Workers, p.Watchers, p.Think = 3, 1, 1, 2*time.Second
			p.lastFirst()
		}},
	{name: "deposed", aim: "leases that are renewed while leadership moves",
		faulty: 50 * time.Second, pace: 4 * time.Second,
		faults: []string{"leader transfers", "leader transfers", "isolation from members"},
		work:   []string{"leases"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Clients, p.Workers, p.Watchers, p.Think = 3, 1, 1, 2*time.Second
		}},
	{name: "promises", aim: "keep-alives at a leader that stood still while another one was elected, and has not noticed it", faulty: 50 * time.Second, pace: 5 * time.Second,
		faults: []string{"pause"}, work: []string{"leases"}, shape: shapePromises,
		added: []string{"isolation from members"}},
	{name: "locks", aim: "locks and elections", faulty: 40 * time.Second, pace: 4 * time.Second,
		faults: []string{"kill", "broken connections", "pause", "isolation", "leader transfers",
			"hits at the end of leases"}, work: []string{"locks"}},
	{name: "users", aim: "permissions", faulty: 30 * time.Second, pace: 3 * time.Second,
		faults: []string{"kill", "pause", "isolation from members", "leader transfers",
			"late follower", "late follower", "late follower"}, work: []string{setup.Users}},
	{name: "quota", aim: "the quota and the alarm NOSPACE", faulty: 40 * time.Second,
		pace:   6 * time.Second,
		faults: []string{"kill", "leader transfers", "pause"},
		work:   []string{setup.Quota, "comparison"},
		shape:  func(p *Plan, _ *rand.Rand) { p.QuotaBytes = smallQuota }},
	{name: "alarms", aim: "alarms by hand, downgrades, backups, rescue", faulty: 40 * time.Second,
		pace: 8 * time.Second,
		faults: []string{"kill", "leader transfers", "isolation from members", "late follower",
			"late follower"}, work: []string{"alarms", "backup", "comparison",
			"downgrade", "pages"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Rescue, p.Workers, p.Think = true, 9,
				500*time.Millisecond
		}},
	{name: "space", aim: "full disks", faulty: 25 * time.Second, pace: 3 * time.Second,
		faults: []string{"full disk", "full disk of the history", "full disk of the history",
			"slow disk", "leader transfers", "kill"},
		shape: func(p *Plan, _ *rand.Rand) { p.Workers, p.Think = 9, 400*time.Millisecond }},
	{name: "stalls", aim: "what is committed and cannot be applied", faulty: 40 * time.Second,
		pace:   2 * time.Second,
		faults: []string{"full disk of the history"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Workers, p.Watchers, p.Think = 14, 1,
				500*time.Millisecond
		}},
	{name: "hangs", aim: "parts of the disk of a member that hang for 30 s: the others have service, leases and watches", faulty: 140 * time.Second, pace: 30 * time.Second,
		faults: hangNames(), work: []string{"leases"}, shape: shapeHangs},
	{name: "power", aim: "what power failures leave of the log and the history",
		faulty: 30 * time.Second, pace: 2 * time.Second,
		faults: []string{"power failure", "power failure of all", "power failure of all",
			"power failure during syncs", "power failure during syncs", "slow disk", "kill of all"},
		shape: func(p *Plan, rng *rand.Rand) {
			p.Workers, p.Think = 9, 300*time.Millisecond
			p.SnapshotCount = uint64(3 + rng.IntN(40))
		}},
	{name: "cuts", aim: "segments of the log that are given up", faulty: 50 * time.Second,
		pace:   9 * time.Second,
		faults: []string{"power failure", "power failure of all"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Workers, p.Think, p.SnapshotCount, p.Large = 9, 300*time.Millisecond, 10, true
			p.SegmentBytes, p.HistoryBytes = 64<<10, 4<<20
		}},
	{name: "torn", aim: "torn ends of large groups", faulty: 30 * time.Second,
		pace:   5 * time.Second,
		faults: []string{"power failures one by one"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Workers, p.Think, p.SnapshotCount, p.Large = 9, 400*time.Millisecond, 10, true
			p.lastFirst()
		}},
	{name: "acks", aim: "acknowledgements of what is not synced", faulty: time.Minute,
		pace:   4 * time.Second,
		faults: []string{"power failure during syncs"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Workers, p.Watchers, p.Think = 9, 1, 400*time.Millisecond
			p.lastFirst()
		}},
	{name: "syncs", aim: "syncs that fail", faulty: 40 * time.Second, pace: 4 * time.Second,
		faults: []string{"failed syncs, then no power", "failed syncs, then no power",
			"failing syncs", "power failure of all"},
		shape: func(p *Plan, _ *rand.Rand) {
			// a page that is written again is whole
			p.Workers, p.Think, p.Large = 9, 400*time.Millisecond, true
		}},
	{name: "restarts", aim: "restarts in quick succession", faulty: 30 * time.Second,
		pace: 2 * time.Second,
		faults: []string{"kill", "kill of all", "kill of all", "kills after elections", "slow disk",
			"leader transfers"},
		shape: shapeRestarts},
	{name: "begins", aim: "proposals of the first moments of a process", faulty: 40 * time.Second,
		pace: 4 * time.Second,
		// which waits at a member without a leader
		faults: []string{"restarts of a late follower"}, work: []string{"bare"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Clients, p.Workers, p.Watchers, p.Think = 6, 1, 1, 300*time.Millisecond
			p.lastFirst()
		}},
	{name: "starts", aim: "failures during starts", faulty: 50 * time.Second, pace: 7 * time.Second,
		faults: []string{"failures during starts"},
		shape:  func(p *Plan, _ *rand.Rand) { p.LaxReconfig, p.Think = true, 2*time.Second }},
	{name: "joins", aim: "failures during the first start of a member that replaces another one",
		faulty: 50 * time.Second, pace: 7 * time.Second,
		faults: []string{"failures during joins"},
		shape:  func(p *Plan, _ *rand.Rand) { p.LaxReconfig, p.Think = true, 2*time.Second }},
	{name: "members", aim: "changes of the members", faulty: 45 * time.Second,
		pace: 4 * time.Second,
		faults: []string{"member added", "member added as a learner", "member added as a learner",
			"member removed", "member removed", "member replaced", "member removed while away",
			"kill", "kill of all", "isolation from members"},
		work: []string{"bare", "comparison", "pages"}, shape: shapeMembers},
	{name: "removals", aim: "members that are removed while they cannot be reached",
		faulty: 50 * time.Second, pace: 6 * time.Second,
		faults: []string{"member removed while away"}, shape: shapeMembers},
	{name: "moves", aim: "members that get another address", faulty: 30 * time.Second,
		pace:   5 * time.Second,
		faults: []string{"member moved", "member moved", "kill", "isolation from members"},
		shape:  shapeMembers},
	{name: "snapshots", aim: "snapshots to members that lag", faulty: 45 * time.Second,
		pace: 4 * time.Second,
		faults: []string{"snapshot interrupted", "snapshot interrupted", "isolation from members",
			"pause", "power failure"},
		work: []string{"comparison", "downgrade", "leases"},
		shape: func(p *Plan, rng *rand.Rand) {
			p.SnapshotCount, p.Think = uint64(3+rng.IntN(12)), 1500*time.Millisecond
		}},
	{name: "installs", aim: "members that stop while they install a snapshot, or cannot copy what they have", faulty: 50 * time.Second, pace: 8 * time.Second,
		faults: []string{"installations interrupted"},
		shape:  func(p *Plan, _ *rand.Rand) { p.SnapshotCount, p.Think = 3, 800*time.Millisecond }},
	{name: "damage", aim: "bits that flip under files", faulty: 40 * time.Second,
		pace: 6 * time.Second,
		faults: []string{"bit flips", "bit flips under records", "bit flips before a start",
			"bit flips before a start", "kill"}, work: []string{"comparison", "pages"},
		shape: func(p *Plan, rng *rand.Rand) {
			p.SnapshotCount, p.Places = uint64(5+rng.IntN(30)), p.Members+2
			p.ScrubPause, p.CorruptCheckInterval = 10*time.Second, 5*time.Second
			// some segments of the history are sealed
			p.Workers, p.Think, p.Large = 6, 500*time.Millisecond, true
		}},
	{name: "growing", aim: "bits that flip under the growing segment of the history before a start",
		faulty: 40 * time.Second, pace: 7 * time.Second,
		faults: []string{"bit flips before a start"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.SegmentBytes, p.HistoryBytes, p.SnapshotCount, p.Places = 128<<10, 4<<20,
				20, p.Members+2
			p.CorruptCheckInterval, p.Workers, p.Think, p.Large = 20*time.Second, 6,
				500*time.Millisecond, true
		}},
	{name: "forwards", aim: "forwarded proposals that arrive late", faulty: 40 * time.Second,
		pace:   5 * time.Second,
		faults: []string{"quick transfers"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Workers, p.Watchers, p.Think = 14, 1,
				250*time.Millisecond
		}},
	{name: "probes", aim: "large entries for members that stood still, and whose links are slow",
		faulty: 40 * time.Second, pace: 4 * time.Second,
		faults: []string{"pause"}, work: []string{"queues"}, added: []string{"slow links"},
		shape: shapeProbes},
	{name: "elections", aim: "votes, forwarded proposals, deposed leaders",
		faulty: 40 * time.Second, pace: 3 * time.Second,
		faults: []string{"leader transfers", "leader transfers", "power failure of the voters",
			"pause", "isolation", "partial partition", "one-way partition"},
		shape: func(p *Plan, _ *rand.Rand) { p.Workers, p.Think = 9, 400*time.Millisecond }},
	{name: "votes", aim: "votes of members that lose power just after them", faulty: time.Minute,
		pace:   5 * time.Second,
		faults: []string{"power failure of the voters"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Workers, p.Watchers, p.Think = 14, 1,
				250*time.Millisecond
		}},
	{name: "quiet", aim: "hours of a cluster with little to do", faulty: time.Hour,
		pace: 4 * time.Minute,
		faults: []string{"kill", "power failure", "pause", "isolation", "slow links",
			"broken connections", "clock rate", "clock jump", "slow disk"},
		shape: func(p *Plan, _ *rand.Rand) {
			p.Workers, p.Watchers, p.Think, p.Calm, p.Heartbeats = 2, 2, 60*time.Second,
				true, fewHeartbeats
		}},
}

// lastFirst leaves only the first fault, which lasts until all faults end.
func (p *Plan) lastFirst() {
	p.Faults = p.Faults[:min(1, len(p.Faults))]
	for n := range p.Faults {
		p.Faults[n].For = p.Faulty - p.Faults[n].At
	}
}

// shapeLeases lets pauses of leaders last until another leader has ended leases, and all disks be
// slow at once: then the end of a lease is under way for long.
func shapeLeases(p *Plan, rng *rand.Rand) {
	p.Workers, p.Watchers, p.Think = 2, 2, 2*time.Second
	for _, f := range slices.Clone(p.Faults) {
		switch f.Kind {
		case "pause":
			for n := range p.Faults {
				if g := &p.Faults[n]; g.Seed == f.Seed {
					g.A, g.For = theLeader,
						6*time.Second+time.Duration(rng.Int64N(int64(6*time.Second)))
				}
			}
		case "slow disk":
			for a := range p.Members {
				f.A = a
				p.Faults = append(p.Faults, f)
			}
		}
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// shapePromises lets leaders stand still until another one is elected, and learn only seconds later
// that they are deposed.
func shapePromises(p *Plan, rng *rand.Rand) {
	p.Clients, p.Workers, p.Watchers, p.Think = 6, 1, 1, 2*time.Second
	for n := range p.Faults {
		f := &p.Faults[n]
		f.A, f.For = theLeader,
			2*time.Second+time.Duration(rng.Int64N(int64(1500*time.Millisecond)))
		cut := *f
		cut.Kind, cut.For = "isolation from members", f.For+2*time.Second
		p.Faults = append(p.Faults, cut)
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// shapeProbes lets members stand still until others probe them, while many reads make heartbeats
// that they answer all at once then, over slow links.
func shapeProbes(p *Plan, rng *rand.Rand) {
	p.Workers, p.Watchers, p.Think, p.Large = 14, 1, 250*time.Millisecond, true
	p.SegmentBytes = 0 // a member that has all entries in its log sends no snapshot
	p.SnapshotCount = 10_000
	for n := range p.Faults {
		f := &p.Faults[n]
		f.A, f.For = n%p.Members, 2*time.Second+time.Duration(rng.Int64N(int64(time.Second)))
		slow := *f
		slow.Kind, slow.For = "slow links", f.For+10*time.Second
		p.Faults = append(p.Faults, slow)
	}
	slices.SortStableFunc(p.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// shapeRestarts lets faults be short, and members have little time between them.
func shapeRestarts(p *Plan, rng *rand.Rand) {
	p.Workers, p.Think = 9, 300*time.Millisecond
	for n := range p.Faults {
		if f := &p.Faults[n]; strings.HasPrefix(f.Kind, "kill") {
			f.For = time.Duration(rng.Int64N(int64(500 * time.Millisecond)))
		}
	}
}

// shapeMembers lets members be added, and changes be made while a member is away.
func shapeMembers(p *Plan, rng *rand.Rand) {
	p.Places, p.LaxReconfig, p.Think = p.Members+1, true, time.Second
	p.Workers = 2 * p.Places // so that each member has a client of its own
	p.SnapshotCount = uint64(3 + rng.IntN(30))
}

// Profiles returns the names of all profiles with what they aim at, one a line.
func Profiles() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: a random half of all faults and work\n", Mixed)
	for _, p := range profiles {
		fmt.Fprintf(&b, "%s: %s\n", p.name, p.aim)
	}
	return b.String()
}

// ProfilePlan draws a plan of a profile. Faults begin for as long as faulty says, or as is usual
// for the profile if it is 0.
func ProfilePlan(name string, seed uint64, faulty time.Duration) (Plan, error) {
	if name == Mixed || name == "" {
		if faulty == 0 {
			faulty = usual
		}
		return LongPlan(seed, faulty), nil
	}
	n := slices.IndexFunc(profiles, func(p profile) bool { return p.name == name })
	if n < 0 {
		return Plan{}, fmt.Errorf("no profile is named %q; there are\n%s", name, Profiles())
	}
	f := &profiles[n]
	if faulty == 0 {
		faulty = f.faulty
	}
	rng := rand.New(rand.NewPCG(seed, 4))
	p := Plan{Seed: seed, Members: 3, Places: 3, Clients: 1, Workers: 4, Watchers: 3,
		Faulty:        faulty,
		Think:         time.Duration(600+rng.IntN(1000)) * time.Millisecond,
		SnapshotCount: uint64(20 + rng.IntN(100)), Work: slices.Clone(f.work)}
	p.SegmentBytes = segmentBytes(f.faults, 128<<10)
	p.drawFaults(rng, f.faults, f.pace)
	if f.shape != nil {
		f.shape(&p, rng)
	}
	return p, nil
}
