// Package scenario lets a cluster live through faults in a simulated world, and checks what its
// clients saw.
//
// A Plan is drawn from a seed and has everything that a run depends on. So a run can be repeated,
// and a failing plan can be made smaller: without one of its faults or clients the others stay as
// they are.
package scenario

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"vigil/sim/scenario/setup"
)

// Plan is what happens in a run.
type Plan struct {
	Seed    uint64
	Members int
	// Places is the number of machines that can have a member: more than there are at first if
	// members are added.
	Places int
	// Clients is the number of processes with clients.
	Clients int
	// Workers is the number of clients in a process that write or read what is newest, Watchers
	// that of its watchers.
	Workers, Watchers int
	// Faulty is the time in which faults begin. Then they end, and the cluster must recover.
	Faulty time.Duration
	// Think bounds the pause between two operations of a client.
	Think time.Duration
	// SnapshotCount is the number of requests after which a member truncates its log.
	SnapshotCount uint64
	// LaxReconfig lets the members change while some of them cannot be reached.
	LaxReconfig bool
	// QuotaBytes is the quota, 0 for that of the program.
	QuotaBytes int64
	// ScrubPause is how long a member pauses before it looks for damage again, 0 as above.
	ScrubPause time.Duration
	// CorruptCheckInterval is how often the leader compares the members; 0 for what the program
	// does.
	CorruptCheckInterval time.Duration
	// SegmentBytes is the size of the files of the raft log and of the history; 0 as above.
	SegmentBytes int64 `json:",omitempty"`
	// HistoryBytes is the size of the files of the history, 0 for SegmentBytes.
	HistoryBytes int64 `json:",omitempty"`
	// Rescue lets one member start with --force-new-cluster after the end.
	Rescue bool `json:",omitempty"`
	// Calm lets members and watchers do less by themselves: heartbeats and notifications of
	// progress are rare.
	Calm bool `json:",omitempty"`
	// Heartbeats is how many heartbeats fit into an election timeout; 0 for those of the program.
	Heartbeats int `json:",omitempty"`
	// Large lets many values have tens of kilobytes: what is written spans sectors, and the raft
	// log several segments.
	Large bool `json:",omitempty"`
	// Wave and Lull follow each other, if Lull is not 0, while faults begin: in a lull no fault
	// begins, and clients do little.
	Wave, Lull time.Duration `json:",omitempty"`
	// Work has the kinds of work of the clients, besides their operations.
	Work   []string
	Faults []Fault
}

// theLeader and theNewest are targets of faults: the leader at that time, and the member that
// joined last.
const (
	theLeader = -1 - iota
	theNewest
)

// Fault is one fault. Targets are members by number.
type Fault struct {
	Kind string
	At   time.Duration
	For  time.Duration
	A, B int
	// Seed decides what else the fault needs to know.
	Seed uint64
}

func (f Fault) String() string {
	return fmt.Sprintf("%s of %s and %s at %v for %v", f.Kind, target(f.A), target(f.B),
		f.At.Round(time.Millisecond), f.For.Round(time.Millisecond))
}

func target(n int) string {
	switch n {
	case theLeader:
		return "the leader"
	case theNewest:
		return "the newest member"
	}
	return fmt.Sprintf("member %d", n)
}

// smallQuota is a quota that the work on it uses up.
const smallQuota = 2 << 20

// usual is how long faults begin in a plan, in waves.
const usual = 3 * time.Minute

// firstFault is the time before which no fault begins.
const firstFault = 6 * time.Second

// NewPlan draws a plan. Each seed leaves out a random half of the kinds of faults and of work.
func NewPlan(seed uint64) Plan { return LongPlan(seed, usual) }

// LongPlan draws a plan in which faults begin for a longer or shorter time than usual.
func LongPlan(seed uint64, faulty time.Duration) Plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := Plan{Seed: seed, Members: 3, Clients: 1 + rng.IntN(2), Workers: 6, Watchers: 4,
		Faulty:        faulty,
		Think:         time.Duration(600+rng.IntN(4000)) * time.Millisecond,
		SnapshotCount: uint64(20 + rng.IntN(100))}
	switch rng.IntN(24) {
	case 0:
		p.Members = 7
	case 1, 2, 3:
		p.Members = 5
	}
	if rng.IntN(2) == 0 {
		p.SnapshotCount = uint64(3 + rng.IntN(15))
	}
	p.Work = half(rng, slices.Clone(setup.Works))
	if rng.IntN(2) == 0 {
		p.ScrubPause = 10 * time.Second
		p.CorruptCheckInterval = time.Duration(2+rng.IntN(20)) * time.Second
	}
	some := half(rng, kinds())
	p.Places, p.LaxReconfig = p.Members, rng.IntN(2) == 0
	if slices.ContainsFunc(some, isChange) {
		p.Places = min(p.Members+2, 7)
	}
	p.Rescue = rng.IntN(3) == 0
	if rng.IntN(5) == 0 {
		p.Work = slices.DeleteFunc(p.Work,
			func(w string) bool { return !slices.Contains(setup.Authenticated, w) })
		p.Work = append(p.Work, setup.Users)
	} else if rng.IntN(6) == 0 {
		p.QuotaBytes = smallQuota
		p.Work = slices.DeleteFunc(p.Work,
			func(w string) bool { return slices.Contains(setup.Large, w) })
		p.Work = append(p.Work, setup.Quota)
	}
	p.Wave = time.Duration(12+rng.IntN(12)) * time.Second
	p.Lull = time.Duration(10+rng.IntN(40)) * time.Second
	p.SegmentBytes = segmentBytes(some, 64<<10<<(2*rng.IntN(3)))
	p.drawFaults(rng, some, time.Duration(1+rng.IntN(5))*time.Second)
	if rng.IntN(3) > 0 {
		p.Heartbeats = fewHeartbeats
	}
	return p
}

// drawFaults draws faults of some kinds, one in the time pace on average, lulls left out.
func (p *Plan) drawFaults(rng *rand.Rand, some []string, pace time.Duration) {
	for busy := firstFault; ; {
		busy += time.Duration(rng.Int64N(int64(2 * pace)))
		at := busy
		if p.Lull > 0 {
			at += busy / p.Wave * p.Lull
		}
		if at >= p.Faulty {
			return
		}
		f := Fault{Kind: some[rng.IntN(len(some))], At: at, A: rng.IntN(p.Members),
			B: rng.IntN(p.Members), Seed: rng.Uint64()}
		switch rng.IntN(12) {
		case 0, 1, 2, 3:
			f.A = theLeader
		case 4:
			f.A = theNewest
		}
		longest := []time.Duration{300 * time.Millisecond, 3 * time.Second,
			12 * time.Second}[rng.IntN(3)]
		f.For = time.Duration(1 + rng.Int64N(int64(longest)))
		f.For = max(f.For, least[f.Kind])
		p.Faults = append(p.Faults, f)
	}
}

// segmentBytes returns the size of segments in a plan with some kinds of faults: size, unless disks
// are full, because members keep room for requests that free space in large segments only.
func segmentBytes(some []string, size int64) int64 {
	if slices.ContainsFunc(some,
		func(kind string) bool { return strings.HasPrefix(kind, "full disk") }) {
		return 0
	}
	return size
}

// election is the election timeout of the members.
func (p *Plan) election() time.Duration {
	if p.Calm {
		return calmElectionTimeout
	}
	return electionTimeout
}

// fewHeartbeats is the least number of heartbeats in an election timeout that members accept: each
// costs processor time.
const fewHeartbeats = 5

// heartbeats is the number of heartbeats in an election timeout.
func (p *Plan) heartbeats() int { return cmp.Or(p.Heartbeats, 10) }

// recovery is how long the clients work after the last fault has ended.
func (p *Plan) recovery() time.Duration { return 10*time.Second + 5*p.election() }

// progress is the interval of progress notifications.
func (p *Plan) progress() time.Duration {
	if p.Calm {
		return calmProgress
	}
	return progress
}

// users reports whether clients must authenticate.
func (p *Plan) users() bool { return slices.Contains(p.Work, setup.Users) }

// half returns a random half of a list, which it changes.
func half(rng *rand.Rand, all []string) []string {
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:(len(all)+1)/2]
}

// least is how long a fault takes at least that does nothing in a shorter time.
var least = map[string]time.Duration{
	"bit flips":                   3 * time.Second,
	"bit flips under records":     4 * time.Second,
	"bit flips before a start":    5 * time.Second,
	"snapshot interrupted":        8 * time.Second,
	"leader transfers":            4 * electionTimeout,
	"hits at the end of leases":   12 * time.Second,
	"power failure of the voters": 5 * electionTimeout,
	// the others elect a leader before the former one is back
	"power failure during syncs":  7 * electionTimeout,
	"failures during starts":      6 * electionTimeout,
	"failures during joins":       6 * electionTimeout,
	"installations interrupted":   10 * time.Second,
	"late follower":               2 * time.Second,
	"restarts of a late follower": 8 * time.Second,
	"slow disks":                  4 * time.Second,
	"member removed while away":   8 * time.Second,
	"power failures one by one":   8 * time.Second,
	"quick transfers":             4 * electionTimeout,
	"full disk of the history":    time.Second,
	"kills after elections":       8 * electionTimeout,
	"failed syncs, then no power": 4 * electionTimeout,
}

// kinds returns the names of all kinds of faults, in order.
func kinds() []string {
	var out []string
	for k := range faults {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
