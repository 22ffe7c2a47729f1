package fsm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	commandline "flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lineage"
	"vigil/internal/store/history"
	"vigil/internal/vfs/memfs"
)

// A log is a text. Its first lines are the meta records that the store begins with:
//
//	meta BUCKET KEY VALUE
//
// and then come entries, in groups of lines, with everything but numbers in hex:
//
//	entry TYPE TERM DATA
//	conf CONFSTATE          raft's configuration, after a change of it that was accepted
//	= RESULTS STATE         digests of the results, and of the state after the commit
//
// Blank lines and lines with # say what the next entries are about.
var writeLog = commandline.String("write-log", "", "write testdata/logs/`NAME`.txt with the entries and outcomes of this version")

const logs = "testdata/logs"

// TestLogs replays the logs of all versions. Every entry must have the outcome that it had: members of two versions
// apply the same entries during an upgrade.
//
// A version that brings a new kind of request, or changes an outcome from a level on, adds a log:
//
//	go test ./fsm -run TestLogs -write-log=level2
//
// Until the first release the log of the current level may be written anew when an outcome changes on purpose.
// After that a log never changes.
//
//vigil:norace
func TestLogs(t *testing.T) {
	if *writeLog != "" {
		if err := os.MkdirAll(logs, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(logs, *writeLog+".txt"), recordLog(t), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(logs + "/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d logs, %v", len(files), err)
	}
	seen := map[string]bool{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, every := range []int{0, 1, 7} {
			replayLog(t, fmt.Sprintf("%s, reopened every %d entries", filepath.Base(name), every), string(b), every, seen)
		}
	}
	// What is not in any log has no outcome that the next version could be held to.
	for _, what := range everyKind() {
		if !seen[what] {
			t.Errorf("no log has a request of the kind %s that succeeds: write a log of this version", what)
		}
	}
}

// everyKind names everything that can be asked for.
func everyKind() (all []string) {
	for k := range Kind(255) {
		// A kind that the decoder knows says what is wrong with its body.
		b := append(AppendHeader(nil), 2, 0, 0, 0, byte(k), 0)
		PutHeader(b, GroupHeader{Count: 1})
		var d Decoder
		_, _ = d.Reset(b)
		if _, err := d.Next(); err != nil && strings.Contains(err.Error(), fmt.Sprintf("request kind %d", k)) && !strings.Contains(err.Error(), "body") {
			continue
		}
		switch k {
		case KindAuth:
			for op := kv.AuthEnable; op <= kv.LastAuthOp; op++ {
				all = append(all, fmt.Sprintf("auth %d", op))
			}
		case KindVersion:
			for op := kv.DowngradeBegin; op <= kv.VersionSet; op++ {
				all = append(all, fmt.Sprintf("version %d", op))
			}
		default:
			all = append(all, fmt.Sprintf("%d", k))
		}
	}
	for op := cluster.Add; op < cluster.SetAttributes; op++ {
		all = append(all, fmt.Sprintf("membership %d", op))
	}
	return all
}

func describeKind(r *Request) string {
	switch {
	case r.Auth != nil:
		return fmt.Sprintf("auth %d", r.Auth.Op)
	case r.Version != nil:
		return fmt.Sprintf("version %d", r.Version.Op)
	}
	return fmt.Sprintf("%d", r.Kind())
}

// replayLog applies a log to an empty store and compares each outcome. It notes in seen what has succeeded.
func replayLog(t *testing.T, name, text string, reopen int, seen map[string]bool) {
	t.Helper()
	unhex := func(s string) []byte {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return b
	}
	b := &box{t: t, fs: memfs.New(), index: 1}
	var meta []history.Meta
	var about, results string
	n := 0
	for i, line := range strings.Split(text, "\n") {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] == "#" {
			about = line
			continue
		}
		f = append(f, "", "", "") // empty values
		if f[0] == "meta" {
			meta = append(meta, history.Meta{Bucket: unhex(f[1])[0], Key: unhex(f[2]), Value: unhex(f[3])})
			continue
		}
		if b.log == nil {
			b.create(meta)
		}
		switch f[0] {
		case "entry":
			n++
			typ, data := raftpb.EntryType(raftpb.EntryType_value[f[1]]), unhex(f[3])
			if term, err := strconv.ParseUint(f[2], 10, 64); err != nil || term == 0 {
				t.Fatalf("%s: line %d: term %q", name, i+1, f[2])
			} else {
				b.later = term - 1
			}
			out := b.entry(typ, data, true)
			results = digest(describeResults(out))
			note(seen, typ, data, out)
		case "conf":
			if got := cluster.EncodeConfState(b.m.ConfState()); !bytes.Equal(got, unhex(f[1])) {
				t.Fatalf("%s: line %d: raft's configuration is %x, want %s", name, i+1, got, f[1])
			}
		case "=":
			b.commit()
			if reopen > 0 && n%reopen == 0 {
				b.reopen()
			}
			if state := digest(b.dump()); results != f[1] || state != f[2] {
				t.Fatalf("%s: line %d: entry %d (%s) has another outcome: results %s, want %s; state %s, want %s.\nIf that is intended, it needs a level: see the package comment.",
					name, i+1, n, strings.TrimPrefix(about, "# "), results, f[1], state, f[2])
			}
		default:
			t.Fatalf("%s: line %d: %q", name, i+1, line)
		}
	}
	b.close()
	if n < 50 {
		t.Errorf("%s: only %d entries", name, n)
	}
}

// note says what an entry has asked for with success.
func note(seen map[string]bool, typ raftpb.EntryType, data []byte, out outcome) {
	if typ == raftpb.EntryConfChangeV2 {
		var cc raftpb.ConfChangeV2
		if proto.Unmarshal(data, &cc) == nil && out.ConfChange != nil {
			if _, c, _, err := parseConfChange(cc.GetContext()); err == nil {
				seen[fmt.Sprintf("membership %d", c.Op)] = true
			}
		}
		return
	}
	_, reqs, err := decodeAll(data)
	for i := range reqs {
		if err == nil && out.Results[i].Err == nil {
			seen[describeKind(reqs[i])] = true
		}
	}
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

func describeResults(out outcome) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%+v %v %+v\n", out.Header, out.ConfChange != nil, out.Tokens)
	if out.TokensEnd > 0 {
		fmt.Fprintf(&b, "tokens end up to %d\n", out.TokensEnd)
	}
	for _, r := range out.Results {
		err := r.Err
		r.Err = nil
		text, jerr := json.Marshal(r)
		fmt.Fprintf(&b, "%s %v %v\n", text, err, jerr)
	}
	return b.String()
}

// create makes the store of a log.
func (b *box) create(meta []history.Meta) {
	b.t.Helper()
	var err error
	if b.log, err = history.Create(history.Options{FS: b.fs, Dir: "h", ClusterID: 1, MemberID: 2}, history.Applied{Term: 1, Index: 1}, meta); err != nil {
		b.t.Fatal(err)
	}
	b.load()
}

// recorder writes a log.
type recorder struct {
	*box
	out  bytes.Buffer
	time int64 // of the groups
}

func (r *recorder) about(text string) { fmt.Fprintf(&r.out, "\n# %s\n", text) }

func (r *recorder) add(typ raftpb.EntryType, data []byte) {
	fmt.Fprintf(&r.out, "entry %s %d %x\n", typ, 1+r.later, data)
	out := r.entry(typ, data, true)
	if out.ConfChange != nil {
		fmt.Fprintf(&r.out, "conf %x\n", cluster.EncodeConfState(r.m.ConfState()))
	}
	results := digest(describeResults(out))
	r.commit()
	fmt.Fprintf(&r.out, "= %s %s\n", results, digest(r.dump()))
}

func (r *recorder) group(reqs ...*Request) {
	r.add(raftpb.EntryNormal, group(r.t, GroupHeader{Proposer: 7, Sequence: r.index, Time: r.time}, reqs...))
}

func (r *recorder) change(c cluster.Change) {
	cc, err := ConfChange(GroupHeader{Proposer: 7, Sequence: r.index}, c, auth.Identity{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.add(raftpb.EntryConfChangeV2, must(proto.Marshal(cc)))
}

// recordLog makes a log with every kind of request, accepted and refused, and then random ones.
func recordLog(t *testing.T) []byte {
	members, err := cluster.Initial("golden", []cluster.Member{{Name: "a", PeerURLs: []string{"http://a:1"}}, {Name: "b", PeerURLs: []string{"http://b:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	ids := members.IDs()
	r := &recorder{box: &box{t: t, fs: memfs.New(), index: 1}}
	meta := InitialRecords(members, &raftpb.ConfState{Voters: ids})
	for _, m := range meta {
		fmt.Fprintf(&r.out, "meta %02x %x %x\n", m.Bucket, m.Key, m.Value)
	}
	r.create(meta)
	defer r.close()

	r.about("an entry without content, and one of a new term's leader")
	r.add(raftpb.EntryNormal, nil)
	r.about("attributes")
	for _, id := range ids {
		r.group(&Request{Attributes: &cluster.Member{ID: id, Name: "m", ClientURLs: []string{"http://c:1"}, Level: Level}})
	}
	r.group(&Request{Attributes: &cluster.Member{ID: 99, Name: "stranger"}})

	r.about("puts, deletions, transactions, compaction")
	for i := range 12 {
		r.group(put(fmt.Sprintf("k%d", i%5), strings.Repeat("v", i)), &Request{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "k%d", i%5), PrevKV: true, IgnoreValue: i%2 == 0}})
	}
	r.group(&Request{Put: &kv.PutRequest{Key: []byte("none"), IgnoreValue: true}}, &Request{Put: &kv.PutRequest{Key: []byte("none"), IgnoreLease: true}}, &Request{Put: &kv.PutRequest{Key: []byte("k0"), Lease: 9}})
	r.group(&Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("k1"), End: []byte("k3"), PrevKV: true}}, &Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("none")}})
	for target := range kv.CompareTarget(5) {
		for result := range kv.CompareResult(4) {
			c := kv.Compare{Key: []byte("k0"), Target: target, Result: result, Number: 4}
			if target == kv.CompareValue {
				c.Number, c.Value = 0, []byte("vvv")
			}
			r.group(&Request{Txn: &kv.TxnRequest{Compare: []kv.Compare{c},
				Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("yes"), Value: []byte{byte(target), byte(result)}}}, {Range: &kv.RangeRequest{Key: []byte("a"), End: []byte("z"), Limit: 2, Order: kv.SortDescend}}},
				Failure: []kv.Op{{Delete: &kv.DeleteRangeRequest{Key: []byte("yes"), PrevKV: true}}, {Txn: &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("no")}}}}}}}})
		}
	}
	r.group(&Request{Txn: &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("c")}}, {Put: &kv.PutRequest{Key: []byte("nope"), IgnoreValue: true}}}}})
	r.group(&Request{Compact: &kv.CompactRequest{Revision: 10}}, &Request{Compact: &kv.CompactRequest{Revision: 10}}, &Request{Compact: &kv.CompactRequest{Revision: 1 << 40}}, &Request{Compact: &kv.CompactRequest{Revision: 12, Physical: true}})

	r.about("leases")
	r.group(grant(5, 60), grant(5, 60), grant(0, 60), grant(6, kv.MaxLeaseTTL), grant(7, kv.MaxLeaseTTL+1), attach("l1", 5), attach("l2", 5), attach("l3", 6), attach("l3", 5), attach("l4", 77))
	granted := r.index
	ref := kv.LeaseRef{ID: 5, Granted: granted}
	left := func(term uint64, remaining int64, since uint64) *Request {
		return &Request{LeaseCheckpoint: &kv.LeaseCheckpointRequest{Term: term, Checkpoints: []kv.LeaseCheckpoint{{LeaseRef: ref, Remaining: remaining, Since: since}}}}
	}
	r.group(left(1, 30, granted), left(2, 20, granted))
	r.group(left(1, 0, 0))
	reset := r.index
	r.group(left(1, 25, granted))
	r.group(left(1, 40, reset))
	r.group(revoke(6), revoke(6))
	r.group(&Request{LeaseExpire: &kv.LeaseExpireRequest{Term: 1, Leases: []kv.LeaseRef{{ID: 5, Granted: granted + 1}, ref, {ID: 8}}}}, &Request{LeaseExpire: &kv.LeaseExpireRequest{Term: 2, Leases: []kv.LeaseRef{ref}}})

	r.about("alarms and versions")
	for _, typ := range []kv.AlarmType{kv.AlarmNoSpace, kv.AlarmCorrupt} {
		alarm := kv.Alarm{MemberID: ids[0], Type: typ}
		r.group(&Request{Alarm: &kv.AlarmChange{Alarm: alarm}}, &Request{Alarm: &kv.AlarmChange{Alarm: alarm}}, put("alarmed", "v"), grant(8, 60), &Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("alarmed")}})
		r.group(&Request{Alarm: &kv.AlarmChange{Alarm: alarm, Clear: true}}, put("alarmed", "w"))
	}
	version := func(op kv.VersionOp, minor uint32) *Request {
		v := kv.VersionChange{Op: op}
		if minor > 0 {
			v.Version = kv.Version{Major: 3, Minor: minor}
		}
		return &Request{Version: &v}
	}
	r.group(version(kv.DowngradeEnd, 0), version(kv.DowngradeBegin, 5), version(kv.DowngradeBegin, 6), version(kv.DowngradeBegin, 6), version(kv.VersionSet, 6), version(kv.DowngradeEnd, 0), version(kv.VersionSet, 7))

	r.about("times of revisions: of clocks that are a little behind, and far behind")
	for _, ms := range []int64{20_000, 25_000, 15_001, 90_000_000, 90_000_001, 30_000, 29_000, 29_000, 20_001, 15_000, 40_000} {
		r.time = ms
		r.group(put("timed", fmt.Sprint(ms)), put("too", ""))
	}
	r.group(&Request{Compact: &kv.CompactRequest{Revision: r.m.store.Revision() - 5}})
	r.time = 41_000

	r.about("membership")
	learner := cluster.Member{ID: 0xc, PeerURLs: []string{"http://c:1"}, Learner: true}
	r.change(cluster.Change{Op: cluster.Add, Member: learner})
	r.change(cluster.Change{Op: cluster.Add, Member: learner})
	r.change(cluster.Change{Op: cluster.Update, Member: cluster.Member{ID: 0xc, PeerURLs: []string{"http://c:2"}}})
	r.change(cluster.Change{Op: cluster.Promote, Member: cluster.Member{ID: 0xc}})
	r.change(cluster.Change{Op: cluster.Promote, Member: cluster.Member{ID: 0xc}})
	r.change(cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: ids[1]}})
	r.change(cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: ids[1]}})
	r.group(&Request{Attributes: &cluster.Member{ID: 0xc, Name: "c", Level: Level}})
	for id := range uint64(2) {
		r.change(cluster.Change{Op: cluster.Add, Member: cluster.Member{ID: 0xd0 + id, PeerURLs: []string{fmt.Sprintf("http://d:%d", id)}, Learner: true}, MaxLearners: 1})
	}
	for id := range uint64(3) {
		r.change(cluster.Change{Op: cluster.Add, Member: cluster.Member{ID: 0xe0 + id, PeerURLs: []string{fmt.Sprintf("http://e:%d", id)}}, Strict: true})
	}
	for _, id := range []uint64{0xc, 0xe0, ids[0]} {
		r.change(cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: id}, Strict: true})
		r.change(cluster.Change{Op: cluster.Remove, Member: cluster.Member{ID: id}})
	}

	r.about("random requests")
	g := generator{rand.New(rand.NewPCG(1, 1))}
	for range 60 {
		var reqs []*Request
		for range 1 + g.IntN(4) {
			req := g.request()
			switch {
			case req.Compact != nil:
				req.Compact.Revision = r.m.store.Revision() - g.Int64N(20)
			case req.Auth != nil || req.Version != nil || req.Claim != nil || req.Archive != nil:
				continue // by hand
			case req.Attributes != nil:
				req.Attributes.ID = ids[0]
			case req.LeaseCheckpoint != nil || req.LeaseExpire != nil:
				aim(g.Rand, r.m, req)
			case req.Put != nil && g.IntN(2) == 0:
				req.Put.Lease, req.Put.IgnoreValue, req.Put.IgnoreLease = 0, false, false
			}
			reqs = append(reqs, req)
		}
		r.group(reqs...)
	}
	r.group(&Request{Attributes: &cluster.Member{ID: ids[0], Name: "a", Level: Level}})

	r.about("users and roles")
	rev := func() uint64 { return r.m.Auth().Revision() }
	perm := kv.Permission{Type: kv.PermitReadWrite, Key: []byte("a"), End: []byte("b")}
	r.group(change(kv.AuthRequest{Op: kv.AuthEnable}), change(kv.AuthRequest{Op: kv.UserAdd, User: "root", Hash: "aGFzaA=="}), change(kv.AuthRequest{Op: kv.UserGrantRole, User: "root", Role: "root"}), change(kv.AuthRequest{Op: kv.UserAdd, User: "alice", Hash: "aGFzaA=="}),
		change(kv.AuthRequest{Op: kv.UserAdd, User: "alice"}), change(kv.AuthRequest{Op: kv.UserAdd, User: "bob", NoPassword: true}), change(kv.AuthRequest{Op: kv.UserAdd}), change(kv.AuthRequest{Op: kv.RoleAdd, Role: "r"}), change(kv.AuthRequest{Op: kv.RoleAdd, Role: "r"}),
		change(kv.AuthRequest{Op: kv.RoleGrantPermission, Role: "r", Permission: perm}), change(kv.AuthRequest{Op: kv.UserGrantRole, User: "alice", Role: "r"}), change(kv.AuthRequest{Op: kv.UserGrantRole, User: "alice", Role: "none"}), change(kv.AuthRequest{Op: kv.AuthEnable}))
	token := func(user string, rev uint64) *Request {
		return change(kv.AuthRequest{Op: kv.Authenticate, User: user, TokenHash: strings.Repeat("h", 32), Revision: rev})
	}
	r.group(token("alice", rev()), token("alice", rev()-1), token("bob", rev()), token("eve", rev()), change(kv.AuthRequest{Op: kv.TokensEnd, Index: r.index}))
	as := func(user string, req *Request) *Request { return by(user, rev(), req) }
	r.group(put("a1", "nobody"), as("alice", put("a1", "v")), as("alice", put("b1", "v")), as("root", put("b1", "v")), by("alice", 1, put("a1", "old")), by("alice", rev()-1, put("a1", "old")), as("eve", put("a1", "v")), as("alice", &Request{Txn: &kv.TxnRequest{Failure: []kv.Op{{Put: &kv.PutRequest{Key: []byte("b1")}}}}}),
		as("alice", &Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("a"), End: []byte{0}}}), grant(20, 60), as("root", attach("z", 20)), as("alice", attach("a1", 20)), as("alice", revoke(20)), as("alice", change(kv.AuthRequest{Op: kv.AuthDisable})), as("root", change(kv.AuthRequest{Op: kv.UserDelete, User: "root"})))
	for _, req := range []kv.AuthRequest{{Op: kv.UserChangePassword, User: "alice", Hash: "bmV3"}, {Op: kv.UserChangePassword, User: "eve"}, {Op: kv.RoleRevokePermission, Role: "r", Permission: perm}, {Op: kv.RoleRevokePermission, Role: "r", Permission: perm},
		{Op: kv.UserRevokeRole, User: "alice", Role: "r"}, {Op: kv.UserRevokeRole, User: "alice", Role: "r"}, {Op: kv.RoleDelete, Role: "r"}, {Op: kv.RoleDelete, Role: "root"}, {Op: kv.UserDelete, User: "bob"}, {Op: kv.UserDelete, User: "bob"},
		{Op: kv.RoleGrantPermission, Role: "r", Permission: kv.Permission{Key: []byte("b"), End: []byte("a")}}, {Op: kv.AuthDisable}, {Op: kv.AuthDisable}} {
		r.group(as("root", change(req)), as("alice", put("a2", "v")))
	}

	r.about("claims of terms")
	claim := func(term uint64, id byte, restart bool) *Request {
		return &Request{Claim: &lineage.Claim{Term: term, ID: lineage.ID{id}, Restart: restart}}
	}
	archive := func(id byte) *Request {
		return &Request{Archive: &lineage.Archive{Place: lineage.PlaceOf("file:///a"), ID: lineage.ID{id}}}
	}
	r.group(claim(2, 1, false), claim(1, 0, false), archive(1))
	r.group(claim(1, 1, false), claim(1, 2, false))
	r.group(archive(0), archive(1), archive(2))
	for r.later < 4 {
		r.later++
		r.add(raftpb.EntryNormal, nil)
		if r.later != 2 { // a term without a claim
			r.group(put("claimed", "v"), claim(r.later, 9, false), claim(1+r.later, byte(10+r.later), false), claim(1+r.later, 99, false))
		}
	}
	r.group(claim(1+r.later, 50, true), claim(1+r.later, 51, false))
	r.later++
	r.group(claim(1+r.later, 60, false))
	return r.out.Bytes()
}
