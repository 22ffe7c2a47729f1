package server

import (
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/health"
	"vigil/internal/member/peer"
	"vigil/internal/member/replica"
	"vigil/internal/state/cluster"
	"vigil/internal/vfs"
	"vigil/internal/vfs/faultfs"
)

// TestWhatAMemberWaitsFor: the reason names the members that are missing, and its kind follows from
// what does not pass by itself.
func TestWhatAMemberWaitsFor(t *testing.T) {
	members := []cluster.Member{{ID: 3, Name: "m3"}, {ID: 1, Name: "m1"}, {ID: 2, Name: "m2"},
		{ID: 4, Name: "m4", Learner: true}}
	connected := func(id uint64) peer.Status { return peer.Status{ID: id, Connected: time.Now()} }
	failed := func(id uint64,
		f peer.Failure) peer.Status {
		return peer.Status{ID: id, Failure: &f}
	}
	refused := peer.Failure{Text: "connection refused"}
	for name, c := range map[string]struct {
		self  replica.Status
		peers []peer.Status
		kind  string
		want  string
		names string
	}{
		"alone": {replica.Status{MemberID: 1},
			[]peer.Status{failed(2, refused), failed(3, refused)}, health.ForMajority,
			"a majority (2 of 3 voting members): m2, m3 missing; last error of m2: connection refused; of m3: connection refused", "m2, m3"},
		"before the first dial": {replica.Status{MemberID: 1}, nil, health.ForMajority,
			"a majority (2 of 3 voting members): m2, m3 missing", "m2, m3"},
		"a learner does not count": {replica.Status{MemberID: 1},
			[]peer.Status{failed(2, refused), connected(4)}, health.ForMajority,
			"a majority (2 of 3 voting members): m2, m3 missing; last error of m2: connection refused", "m2, m3"},
		"a learner itself": {replica.Status{MemberID: 4},
			[]peer.Status{connected(1), failed(2, refused), failed(3, refused)}, health.ForMajority,
			"a majority (2 of 3 voting members): m2, m3 missing; last error of m2: connection refused; of m3: connection refused", "m2, m3"},
		"another cluster": {replica.Status{MemberID: 1, ClusterID: 0xc1},
			[]peer.Status{failed(2,
				peer.Failure{Code: peer.CodeCluster, Cluster: 0xc2, Member: 2, Text: "x"}),
				failed(3, refused)},
			health.ForIdentity, "a majority (2 of 3 voting members): m2, m3 missing; last error of m2: it belongs to another cluster, c2, and this member to c1; of m3: connection refused", "m2, m3"},
		"another one's directory": {replica.Status{MemberID: 1},
			[]peer.Status{failed(2,
				peer.Failure{Code: peer.CodeMember, Cluster: 0xc1, Member: 3, Text: "x"})},
			health.ForIdentity, "a majority (2 of 3 voting members): m2, m3 missing; last error of m2: at its peer URL answers m3, whose data directory is in use there", "m2, m3"},
		"its own directory": {replica.Status{MemberID: 3},
			[]peer.Status{failed(2,
				peer.Failure{Code: peer.CodeMember, Cluster: 0xc1, Member: 3, Text: "x"})},
			health.ForIdentity, "a majority (2 of 3 voting members): m1, m2 missing; last error of m2: this member itself answers at its peer URL: the data directory here is that of m3", "m1, m2"},
		"certificates": {replica.Status{MemberID: 1},
			[]peer.Status{failed(2,
				peer.Failure{TLS: true, Text: "TLS handshake: bad certificate"}),
				failed(3, refused)},
			health.ForTLS, "a majority (2 of 3 voting members): m2, m3 missing; last error of m2: TLS handshake: bad certificate; of m3: connection refused", "m2, m3"},
		"an election": {replica.Status{MemberID: 1}, []peer.Status{connected(2)},
			health.ForLeader, "a leader: 2 of 3 voting members are connected, and none was elected yet", ""},
		"entries": {replica.Status{MemberID: 1, Leader: 2, Applied: 10, RaftIndex: 50},
			[]peer.Status{connected(2)}, health.ForCatchUp,
			"the leader's data: entry 10 of at least 50 is applied, from the leader m2", ""},
		"a snapshot": {replica.Status{MemberID: 4, Leader: 2},
			[]peer.Status{{ID: 2, Received: peer.Transfers{UnderWay: 1, Bytes: 77}}},
			health.ForCatchUp, "a snapshot from the leader m2: 77 bytes received", ""},
		"a slow leader": {replica.Status{MemberID: 1, Leader: 2, Applied: 50, RaftIndex: 50},
			[]peer.Status{connected(2)}, health.ForLeader,
			"the leader m2 to confirm that this member is up to date, and its name to be published",
			""},
		"a leader unseen": {replica.Status{MemberID: 1, Leader: 2, Applied: 50, RaftIndex: 50},
			[]peer.Status{failed(2, refused)}, health.ForLeader,
			"the leader m2 to confirm that this member is up to date, and its name to be published; last error: connection refused", ""},
	} {
		w, names := standing{c.self, append([]cluster.Member{}, members...), c.peers}.wait()
		if w.For != c.kind || w.What != c.want || names != c.names {
			t.Errorf("%s: %s, %q, %q; want %s, %q, %q", name, w.For, w.What, names, c.kind,
				c.want, c.names)
		}
	}
}

// TestMissingMembersAreBounded: a large cluster makes no endless line.
func TestMissingMembersAreBounded(t *testing.T) {
	var s standing
	for id := range uint64(100) {
		s.members = append(s.members, cluster.Member{ID: id + 1})
		s.peers = append(s.peers,
			peer.Status{ID: id + 1, Failure: &peer.Failure{Text: strings.Repeat("x", 300)}})
	}
	s.self.MemberID = 1
	w, _ := s.wait()
	if n := strings.Count(w.What, "xxx; of "); n != maxNamed-1 || len(w.String()) > 2000 ||
		!strings.Contains(w.What, ", ... missing") {
		t.Errorf("%d members are named, %d bytes: %s", n, len(w.String()), w.What)
	}
}

// TestReasonsAgree: the words of the transport are those that the checks know.
func TestReasonsAgree(t *testing.T) {
	for want, f := range map[string]peer.Failure{
		health.WrongCluster: {Code: peer.CodeCluster}, health.WrongMember: {Code: peer.CodeMember},
		health.WrongVersion: {Code: peer.CodeVersion}, health.WrongTLS: {TLS: true},
	} {
		if got := f.Reason(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestCompareRecord: only a start with the name and the URLs of another member is refused. etcd
// allows another name and another URL.
func TestCompareRecord(t *testing.T) {
	members := []cluster.Member{{ID: 1, Name: "m1", PeerURLs: []string{"http://a:1"}},
		{ID: 2, Name: "m2", PeerURLs: []string{"http://b:1"}},
		{ID: 3, PeerURLs: []string{"http://c:1"}},
		{ID: 4, Name: "default", PeerURLs: []string{"http://localhost:2380"}}}
	for name, c := range map[string]struct {
		self      int
		name, url string
		refused   bool
		level     slog.Level // of the line, Debug for none
		line      string
	}{
		"swapped, before its first name is published": {self: 2, name: "m2",
			url: "http://b:1", refused: true,
			line: "belongs to a member without a name (3, http://c:1), and --name=m2 with --initial-advertise-peer-urls=http://b:1 is member 2"},
		"flags left out, which are those of another one": {self: 0, name: "default",
			url: "http://localhost:2380", level: slog.LevelWarn, line: "--name differs"},
		"as recorded":                      {self: 0, name: "m1", url: "http://a:1"},
		"another spelling":                 {self: 0, name: "m1", url: "http://A:1"},
		"a name that is not published yet": {self: 2, name: "m3", url: "http://c:1"},
		"swapped": {self: 0, name: "m2", url: "http://b:1", refused: true,
			line: "belongs to member m1 (1, http://a:1), and --name=m2 with --initial-advertise-peer-urls=http://b:1 is member 2"},
		"another name": {self: 0, name: "new", url: "http://a:1",
			level: slog.LevelWarn, line: "--name differs"},
		"the name of another one": {self: 0, name: "m2", url: "http://a:1",
			level: slog.LevelError, line: "--name is the name of another member"},
		"another URL": {self: 0, name: "m1", url: "http://d:1",
			level: slog.LevelWarn, line: "--initial-advertise-peer-urls has no effect"},
		"the URL of another one": {self: 0, name: "m1", url: "http://b:1",
			level: slog.LevelError, line: "the peer URLs given are those of another member"},
		"the URL of one that has no name": {self: 0, name: "m1", url: "http://c:1",
			level: slog.LevelError, line: "the peer URLs given are those of another member"},
		"the name of one, the URL of third": {self: 0, name: "m2", url: "http://c:1",
			level: slog.LevelError, line: "--name is the name of another member"},
	} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			m := &Member{cfg: Config{DataDir: "d", Name: c.name,
				InitialAdvertisePeerURLs: []string{c.url}},
				log: slog.New(slog.NewTextHandler(&log, nil))}
			err := m.compareRecord(members[c.self], members)
			switch {
			case c.refused:
				if err == nil || !strings.Contains(err.Error(), c.line) {
					t.Errorf("%v, want %q", err, c.line)
				}
			case err != nil:
				t.Error(err)
			case c.line == "" && log.Len() > 0 ||
				c.line != "" && (!strings.Contains(log.String(), c.line) ||
					!strings.Contains(log.String(), "level="+c.level.String())):
				t.Errorf("log %q, want %v %q", log.String(), c.level, c.line)
			}
		})
	}
}

// TestHangingDiskAtStart: a disk that does not answer at the start is named on every page, from the
// first file on.
func TestHangingDiskAtStart(t *testing.T) {
	dir := t.TempDir()
	address, url := vacant(t)
	config := func(logs io.Writer, fault func(op faultfs.Op, name string) faultfs.Fault) Config {
		return Config{Name: "m1", DataDir: filepath.Join(dir, "m1.etcd"),
			FS:               faultfs.New(vfs.OS(), fault),
			ListenClientURLs: []string{url}, AdvertiseClientURLs: []string{url},
			ListenPeerURLs: []string{"http://127.0.0.1:0"},
			UnsafeNoSync:   true, Logger: slog.New(slog.NewTextHandler(logs, nil))}
	}
	for _, c := range []struct {
		what  string
		hangs func(op faultfs.Op, name string) bool
		want  string
	}{
		{"looking at the directory", func(faultfs.Op, string) bool { return true },
			"waiting for the data directory "},
		{"the lock", func(op faultfs.Op, _ string) bool { return op == faultfs.OpLock },
			"waiting for the lock of the data directory "},
		{"making the files", func(op faultfs.Op, name string) bool {
			return op == faultfs.OpWrite && strings.Contains(name, "history")
		}, "waiting for the raft log and the store in "},
		{"reading the log", func(op faultfs.Op, name string) bool {
			return op == faultfs.OpRead &&
				strings.Contains(name, "wal")
		}, "waiting for the raft log and the store in "},
	} {
		t.Run(c.what, func(t *testing.T) {
			gate, logs := make(chan struct{}), &lockedBuffer{}
			var hung atomic.Bool
			type started struct {
				m   *Member
				err error
			}
			done := make(chan started, 1)
			go func() {
				m, err := Start(config(logs, func(op faultfs.Op, name string) faultfs.Fault {
					if c.hangs(op, name) {
						hung.Store(true)
						<-gate
					}
					return faultfs.None
				}))
				done <- started{m, err}
			}()
			release := sync.OnceFunc(func() { close(gate) })
			defer release()
			until(t, "the hanging operation", hung.Load)
			for path, want := range map[string]string{"/readyz": c.want, "/health": c.want,
				"/debug/vars": `"for":"d`, "/console/": c.want, "/metrics": c.want,
				"/livez": "ok\n"} {
				res, err := http.Get("http://" + address + path)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(res.Body)
				res.Body.Close()
				ok := path == "/livez" || path == "/debug/vars"
				if err != nil || !strings.Contains(string(b), want) ||
					(res.StatusCode == http.StatusOK) != ok {
					t.Errorf("%s: %s %s %v", path, res.Status, b, err)
				}
			}
			until(t, "a line in the log",
				func() bool { return strings.Contains(logs.String(), c.want) })
			release()
			s := <-done
			if s.err != nil {
				t.Fatal(s.err)
			}
			<-s.m.Serving()
			if res, err := http.Get("http://" + address + "/readyz"); err != nil ||
				res.StatusCode != http.StatusOK {
				t.Errorf("a member that serves: %v %v", res, err)
			}
			stop(t, s.m)
		})
	}
}

// vacant returns an address that nothing listens on, and its URL.
func vacant(t *testing.T) (address, url string) {
	t.Helper()
	url = vacantURL(t)
	return strings.TrimPrefix(url, "http://"), url
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}
