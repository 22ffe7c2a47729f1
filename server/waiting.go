package server

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vigil/internal/edge/httpd"
	"vigil/internal/health"
	"vigil/internal/kv"
	"vigil/internal/member/peer"
	"vigil/internal/member/replica"
	"vigil/internal/state/cluster"
)

// startup holds what a member waits for until it runs.
type startup struct {
	began time.Time
	mu    struct {
		sync.Mutex
		wait    health.Wait
		running bool // the replica and the transport exist, and report what the member waits for
	}
}

// await records what the start waits for.
func (s *startup) await(what, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.wait = health.Wait{For: what, What: text}
}

// clipped bounds a setting in a text.
func clipped(s string) string {
	if len(s) > maxSetting {
		return s[:maxSetting] + "..."
	}
	return s
}

const maxSetting = 200

// noteRunning records that the replica runs.
func (s *startup) noteRunning() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.running = true
}

func (s *startup) state() (health.Wait, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.wait, s.mu.running
}

// waiting returns what the member waits for before it serves clients, nil once it serves.
func (m *Member) waiting() *health.Wait {
	w, _ := m.waitingFor()
	return w
}

// waitingFor is waiting with a key that changes when a new log line is worthwhile.
func (m *Member) waitingFor() (*health.Wait, string) {
	select {
	case <-m.served:
		return nil, ""
	default:
	}
	w, running := m.startup.state()
	key := w.What
	if running {
		w, key = standing{m.replica.Status(), slices.Clone(m.replica.Membership().Members()),
			m.transport.Status()}.wait()
	}
	w.Seconds, w.Name = int64(time.Since(m.startup.began).Seconds()), m.cfg.Name
	return &w, w.For + " " + key
}

// waitingText returns the text of waiting for a page, "" once the member serves.
func (m *Member) waitingText() string {
	if w := m.waiting(); w != nil {
		return w.String()
	}
	return ""
}

// standing holds the facts that decide why a running member does not serve.
type standing struct {
	self    replica.Status
	members []cluster.Member
	peers   []peer.Status
}

// name returns the name of a member, or its ID while it has none.
func (s standing) name(id uint64) string {
	for _, x := range s.members {
		if x.ID == id && x.Name != "" {
			return x.Name
		}
	}
	return strconv.FormatUint(id, 16)
}

func (s standing) peer(id uint64) *peer.Status {
	for i := range s.peers {
		if s.peers[i].ID == id {
			return &s.peers[i]
		}
	}
	return nil
}

// maxNamed bounds the missing members that a text names.
const maxNamed = 8

// wait returns what the member waits for, and the names of missing members.
func (s standing) wait() (w health.Wait, names string) {
	if s.self.Leader != 0 {
		return s.catchUp(), ""
	}
	slices.SortFunc(s.members,
		func(a, b cluster.Member) int { return strings.Compare(a.Name, b.Name) })
	voters, here := 0, 0
	var missing, why []string
	kind := health.ForMajority
	for _, x := range s.members {
		if x.Learner {
			continue
		}
		voters++
		p := s.peer(x.ID)
		if x.ID == s.self.MemberID || p != nil && !p.Connected.IsZero() {
			here++
			continue
		}
		if len(missing) == maxNamed {
			missing = append(missing, "...")
		}
		if len(missing) > maxNamed {
			continue
		}
		missing = append(missing, s.name(x.ID))
		if p != nil && p.Failure != nil {
			why = append(why, s.name(x.ID)+": "+s.describe(p.Failure))
			kind = graver(kind, p.Failure)
		}
	}
	need := voters/2 + 1
	if here >= need {
		return health.Wait{For: health.ForLeader,
			What: fmt.Sprintf("a leader: %d of %d voting members are connected, and none was "+
				"elected yet", here, voters)}, ""
	}
	names = strings.Join(missing, ", ")
	text := fmt.Sprintf("a majority (%d of %d voting members): %s missing", need, voters, names)
	if len(why) > 0 {
		text += "; last error of " + strings.Join(why, "; of ")
	}
	return health.Wait{For: kind, What: text}, names
}

// catchUp returns what a member that knows a leader waits for.
func (s standing) catchUp() health.Wait {
	lead := s.name(s.self.Leader)
	if p := s.peer(s.self.Leader); p != nil && p.Received.UnderWay > 0 {
		return health.Wait{For: health.ForCatchUp,
			What: fmt.Sprintf("a snapshot from the leader %s: %d bytes received", lead,
				p.Received.Bytes)}
	}
	if s.self.Applied < s.self.RaftIndex || s.self.Applied == 0 {
		return health.Wait{For: health.ForCatchUp,
			What: fmt.Sprintf("the leader's data: entry %d of at least %d is applied, from the "+
				"leader %s", s.self.Applied, s.self.RaftIndex, lead)}
	}
	text := "the leader " + lead +
		" to confirm that this member is up to date, and its name to be published"
	if p := s.peer(s.self.Leader); p != nil && p.Connected.IsZero() && p.Failure != nil {
		text += "; last error: " + s.describe(p.Failure)
	}
	return health.Wait{For: health.ForLeader, What: text}
}

// graver returns the kind of a wait combined with a failure. A failure that does not pass by itself
// decides.
func graver(kind string, f *peer.Failure) string {
	switch reason := f.Reason(); {
	case reason == health.WrongCluster || reason == health.WrongMember:
		return health.ForIdentity
	case reason == health.WrongTLS && kind == health.ForMajority:
		return health.ForTLS
	}
	return kind
}

// describe returns a failure with the names of members.
func (s standing) describe(f *peer.Failure) string {
	switch reason := f.Reason(); {
	case reason == health.WrongMember && f.Member == s.self.MemberID:
		return fmt.Sprintf("this member itself answers at its peer URL: the data directory here "+
			"is that of %s", s.name(s.self.MemberID))
	case reason == health.WrongMember && f.Member != 0:
		return fmt.Sprintf("at its peer URL answers %s, whose data directory is in use there",
			s.name(f.Member))
	case reason == health.WrongCluster && f.Cluster != 0:
		return fmt.Sprintf("it belongs to another cluster, %x, and this member to %x", f.Cluster,
			s.self.ClusterID)
	}
	return f.Text
}

// failures returns the reasons why this member cannot send messages to others.
func (m *Member) failures() []health.PeerFailure {
	out := []health.PeerFailure{}
	if _, running := m.startup.state(); !running {
		return out
	}
	for _, p := range m.transport.Status() {
		f := p.Failure
		if f == nil {
			f = p.Detour
		}
		if f == nil {
			continue
		}
		x := health.PeerFailure{Member: strconv.FormatUint(p.ID, 16), Reason: f.Reason(),
			Text: f.Text, Seconds: int64(time.Since(f.Since).Seconds()), Comes: p.Detour != nil}
		if f.Member != 0 {
			x.Cluster, x.Answered = strconv.FormatUint(f.Cluster, 16),
				strconv.FormatUint(f.Member, 16)
		}
		out = append(out, x)
	}
	return out
}

const (
	// waitReport is the time after which a start that still waits is logged. Further lines follow
	// after waitRepeat, which doubles up to maxWaitRepeat, or when the reason changes, but not
	// within minWaitRepeat.
	waitReport    = 3 * time.Second
	minWaitRepeat = 5 * time.Second
	waitRepeat    = 30 * time.Second
	maxWaitRepeat = 10 * time.Minute
)

// reportWaiting logs what the member waits for, until it serves or ctx ends.
func (m *Member) reportWaiting(ctx context.Context) {
	timer := time.NewTimer(max(waitReport, 2*m.cfg.ElectionTimeout))
	defer timer.Stop()
	var last string
	var logged time.Time
	repeat := waitRepeat
	for {
		select {
		case <-timer.C:
		case <-m.served:
			return
		case <-ctx.Done():
			return
		}
		w, key := m.waitingFor()
		if w == nil {
			return
		}
		timer.Reset(minWaitRepeat)
		same := key == last
		if since := time.Since(logged); same && since < repeat {
			continue
		} else if same {
			repeat = min(2*repeat, maxWaitRepeat)
		}
		last, logged = key, time.Now()
		m.log.Warn("the member is alive and does not serve clients yet", "reason",
			w.String(), "for", w.For)
	}
}

// gate passes requests on to the handler set last.
type gate struct{ to atomic.Pointer[http.Handler] }

func (g *gate) set(h http.Handler) { g.to.Store(&h) }

// ServeHTTP implements http.Handler.
func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*g.to.Load()).ServeHTTP(w, r) }

// startingHandlers report that the member is alive before its data is open.
func (m *Member) startingHandlers() (client, metrics http.Handler) {
	return httpd.Starting{Waiting: m.waitingText, Await: m.awaitServing, Then: &m.web.clients,
		Vars: m.waitingVars,
		CORS: m.cfg.CORS, HostWhitelist: m.cfg.HostWhitelist, Logger: m.log,
		CallTimeout: kv.RequestTimeout(m.cfg.ElectionTimeout)}.Handlers()
}

// awaitServing waits until the member serves clients, it is closed, or ctx ends.
func (m *Member) awaitServing(ctx context.Context) {
	select {
	case <-m.served:
	case <-m.closed:
	case <-ctx.Done():
	}
}

// waitingVars returns the variables of /debug/vars for a waiting member.
func (m *Member) waitingVars() map[string]any {
	out := map[string]any{"peer_failures": m.failures()}
	if w := m.waiting(); w != nil {
		out["waiting"] = w
	}
	return out
}
