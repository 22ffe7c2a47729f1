package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/offline/snapshot/boltfile"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lease"
)

// list is records in memory.
type list struct {
	all []rec
	at  int
	err error
}

type rec struct {
	rev       kv.Rev
	tombstone bool
	data      []byte
}

func (l *list) Next() bool      { l.at++; return l.at <= len(l.all) }
func (l *list) Rev() kv.Rev     { return l.all[l.at-1].rev }
func (l *list) Tombstone() bool { return l.all[l.at-1].tombstone }
func (l *list) Data() []byte    { return l.all[l.at-1].data }
func (l *list) Err() error      { return l.err }

func put(t testing.TB, main, sub int64, key, value string) rec {
	t.Helper()
	b, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(key), Value: []byte(value),
		CreateRevision: main, ModRevision: main, Version: 1})
	if err != nil {
		t.Fatal(err)
	}
	return rec{rev: kv.Rev{Main: main, Sub: sub}, data: b}
}

func tombstone(t testing.TB, main, sub int64, key string) rec {
	t.Helper()
	b, err := proto.Marshal(&mvccpb.KeyValue{Key: []byte(key), ModRevision: main})
	if err != nil {
		t.Fatal(err)
	}
	return rec{rev: kv.Rev{Main: main, Sub: sub}, tombstone: true, data: b}
}

// write returns a file with its hash at the end.
func write(t testing.TB, s *Contents, records []rec) []byte {
	t.Helper()
	l := NewLayout()
	for _, r := range records {
		if err := l.Add(r.rev, r.tombstone, r.data); err != nil {
			t.Fatal(err)
		}
	}
	p, err := l.Finish(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, p, &list{all: records}); err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != p.Size() {
		t.Fatalf("%d bytes were written and %d announced", out.Len(), p.Size())
	}
	sum := sha256.Sum256(out.Bytes())
	return append(out.Bytes(), sum[:]...)
}

// everything is a state that has something of everything.
func everything(t testing.TB) *Contents {
	t.Helper()
	members, err := cluster.Initial("token",
		[]cluster.Member{{Name: "a", PeerURLs: []string{"http://a:1"}},
			{Name: "b", PeerURLs: []string{"http://b:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	gone := members.IDs()[0]
	if members, _, err = members.Change(cluster.Change{Op: cluster.Remove,
		Member: cluster.Member{ID: gone}}); err != nil {
		t.Fatal(err)
	}
	users, err := auth.Restore(true, 7, []auth.User{
		{Name: "root", Hash: []byte("$2a$"), Roles: []string{"root"}},
		{Name: "cert", NoPassword: true},
		{Name: "bob", Hash: []byte("x"), Roles: []string{"gone", "r"}},
	}, []auth.Role{{Name: "root"}, {Name: "r", Permissions: []kv.Permission{
		{Type: kv.PermitRead, Key: []byte("a"), End: []byte("b")},
		{Type: kv.PermitReadWrite, Key: []byte("c")},
		{Type: kv.PermitWrite, Key: []byte("d"), End: []byte{0}}}}})
	if err != nil {
		t.Fatal(err)
	}
	return &Contents{
		Index: 41, Term: 3, Compact: 9, StorageVersion: "3.7.0", ClusterVersion: "3.7.0",
		Leases: []lease.Lease{
			{LeaseRef: kv.LeaseRef{ID: 5}, TTL: 60},
			{LeaseRef: kv.LeaseRef{ID: 1 << 62}, TTL: kv.MaxLeaseTTL, Remaining: 17},
			{LeaseRef: kv.LeaseRef{ID: -3}, TTL: 1}},
		Alarms: []kv.Alarm{{Type: kv.AlarmNoSpace, MemberID: 12},
			{Type: kv.AlarmCorrupt, MemberID: 1 << 63}},
		Auth:    users,
		Members: members, Conf: &raftpb.ConfState{Voters: members.IDs()},
	}
}

func history(t testing.TB) []rec {
	t.Helper()
	return []rec{put(t, 4, 0, "k", "v"), put(t, 9, 0, "l", ""), put(t, 10, 0, "m", "x"),
		put(t, 10, 1, "n", string(make([]byte, 9000))), tombstone(t, 11, 0, "k")}
}

// A lease that has more left than it was granted, as etcd lets it, is restored with what it was
// granted.
func TestLeaseWithTooMuchLeft(t *testing.T) {
	for left, want := range map[int64]int64{61: 60, 60: 60, 59: 59, -1: 0} {
		l := lease.Lease{LeaseRef: kv.LeaseRef{ID: 5}, TTL: 60, Remaining: left}
		got, err := parseLease(lease.Key(5), appendLease(nil, &l))
		if err != nil || got.TTL != 60 || got.Remaining != want {
			t.Errorf("%d s left: %+v, %v", left, got, err)
		}
	}
}

// Users and roles with names of the largest length, and what each of many has, come back out of a
// file.
func TestLongNames(t *testing.T) {
	if kv.MaxNameBytes != boltfile.MaxKey {
		t.Errorf("names may have %d bytes, and a file holds keys of %d", kv.MaxNameBytes,
			boltfile.MaxKey)
	}
	for _, length := range []int{2024, 2025, 4096, kv.MaxNameBytes} {
		name := func(i int) string { return strings.Repeat("n", length-1) + string(rune('a'+i)) }
		var users []auth.User
		var roles []auth.Role
		for i := range 7 {
			users, roles = append(users, auth.User{Name: name(i), Roles: []string{name(i)}}),
				append(roles, auth.Role{Name: name(i)})
		}
		state, err := auth.Restore(false, 9, users, roles)
		if err != nil {
			t.Fatal(err)
		}
		b := write(t, &Contents{StorageVersion: "3.7.0", Compact: -1, Auth: state}, nil)
		f, err := Open(bytes.NewReader(b), int64(len(b)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := f.Contents.Auth; !reflect.DeepEqual(got.Users(), state.Users()) ||
			!reflect.DeepEqual(got.Roles(), state.Roles()) {
			t.Errorf("names of %d bytes do not come back", length)
		}
	}
}

// What takes long to lay out ends with its context.
func TestLayoutEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := NewLayout().Finish(ctx, everything(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("a layout that was cancelled: %v", err)
	}
}

// What was written is read back.
func TestWrittenIsRead(t *testing.T) {
	want, records := everything(t), history(t)
	b := write(t, want, records)
	var read int64
	f, err := Open(bytes.NewReader(b), int64(len(b)),
		Options{Progress: func(n int64) { read += n }})
	if err != nil {
		t.Fatal(err)
	}
	var got []rec
	if err := f.Records(func(rev kv.Rev, tombstone bool, data []byte) error {
		got = append(got, rec{rev, tombstone, bytes.Clone(data)})
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, records) {
		t.Errorf("records\n%v\nwant\n%v", got, records)
	}
	if read < int64(len(b)) || read > 2*int64(len(b)) {
		t.Errorf("%d bytes of %d were read", read, len(b))
	}
	st := f.Contents
	byID := func(a, b lease.Lease) int { return int(a.ID>>32 - b.ID>>32) }
	slices.SortFunc(st.Leases, byID)
	slices.SortFunc(want.Leases, byID)
	slices.SortFunc(st.Alarms, kv.Alarm.Compare)
	slices.SortFunc(want.Alarms, kv.Alarm.Compare)
	if !reflect.DeepEqual(st.Auth.Records(), want.Auth.Records()) {
		t.Errorf("users and roles differ")
	}
	st.Auth, st.Members, st.Conf = want.Auth, want.Members, want.Conf
	if !reflect.DeepEqual(&st, want) {
		t.Errorf("state\n%+v\nwant\n%+v", &st, want)
	}
}

// A store without anything is a file too.
func TestEmpty(t *testing.T) {
	b := write(t, &Contents{Compact: -1}, nil)
	f, err := Open(bytes.NewReader(b), int64(len(b)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Contents.Compact != -1 || f.Contents.Auth.Enabled() || f.Contents.Auth.Revision() != 1 {
		t.Errorf("%+v", f.Contents)
	}
	st, err := ReadStatus(bytes.NewReader(b), int64(len(b)), nil)
	if err != nil || st.TotalKey != 0 || st.Revision != 0 ||
		st.TotalSize != int64(len(b)-sha256.Size) {
		t.Errorf("%+v, %v", st, err)
	}
}

// The hash is needed unless it was said that it is not, and must be right.
func TestHash(t *testing.T) {
	b := write(t, everything(t), history(t))
	open := func(b []byte, o Options) error {
		_, err := Open(bytes.NewReader(b), int64(len(b)), o)
		return err
	}
	without := b[:len(b)-sha256.Size]
	if err := open(without, Options{}); err != ErrNoHash {
		t.Error(err)
	}
	if err := open(without, Options{SkipHash: true}); err != nil {
		t.Error(err)
	}
	// A page that no tree refers to: only the hash covers it.
	b[2*boltfile.PageSize+100] ^= 4
	if err := open(b, Options{}); !errors.Is(err, ErrCorrupt) {
		t.Error(err)
	}
	if err := open(b, Options{SkipHash: true}); err != nil {
		t.Error(err)
	}
}

// raw makes a file of pairs, as no store of ours would write them.
func raw(t testing.TB, buckets map[string][]pair) []byte {
	t.Helper()
	build := func(b *boltfile.Builder) boltfile.Plan {
		for name, pairs := range buckets {
			_ = b.Bucket(name)
			for _, p := range pairs {
				_ = b.Put(p.key, p.value)
			}
		}
		p, err := b.Finish()
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := build(boltfile.NewCounter())
	var out bytes.Buffer
	build(boltfile.NewWriter(&out, p))
	return out.Bytes()
}

func readAll(b []byte) (Contents, []rec, error) {
	f, err := Open(bytes.NewReader(b), int64(len(b)), Options{SkipHash: true})
	if err != nil {
		return Contents{}, nil, err
	}
	var got []rec
	err = f.Records(func(rev kv.Rev, tombstone bool, data []byte) error {
		got = append(got, rec{rev, tombstone, bytes.Clone(data)})
		return nil
	})
	return f.Contents, got, err
}

func key(rev kv.Rev) []byte { return appendRevision(nil, rev) }

// A file of etcd 3.4 has neither term nor versions nor a bucket of the cluster. One in which
// etcdutl has raised the revision has a record without a key.
func TestForeign(t *testing.T) {
	r := put(t, 5, 0, "k", "v")
	st, got, err := readAll(raw(t, map[string][]pair{
		"key": {{key(kv.Rev{Main: 5}), r.data}, {key(kv.Rev{Main: 1000}), nil}},
		"meta": {{[]byte("consistent_index"), number(77)},
			{[]byte("scheduledCompactRev"), key(kv.Rev{Main: 1000})}},
		"auth": nil, "authRoles": nil, "authUsers": nil, "lease": nil, "alarm": nil,
		"members": {{[]byte("1"), []byte("{}")}},
	}))
	if err != nil || st.Index != 77 || st.Term != 0 || st.Compact != 1000 || len(got) != 1 ||
		got[0].rev.Main != 5 {
		t.Errorf("%+v %v %v", st, got, err)
	}
}

// What is wrong in a file whose pages are good is named by bucket and key.
func TestWrong(t *testing.T) {
	good := put(t, 5, 0, "k", "v").data
	for name, buckets := range map[string]map[string][]pair{
		`no bucket "key"`:         {"meta": nil},
		"not a revision":          {"key": {{[]byte("12345678-12345678"), good}}},
		"revision 5.0: malformed": {"key": {{key(kv.Rev{Main: 5}), []byte("\xff")}}},
		"a record without a key":  {"key": {{key(kv.Rev{Main: 5}), nil}}},
		`bucket meta, key "term"`: {"key": nil, "meta": {{[]byte("term"), []byte("x")}}},
		"finishedCompactRev": {"key": nil,
			"meta": {{[]byte("finishedCompactRev"), []byte("x")}}},
		"bucket lease": {"key": nil,
			"lease": {{lease.Key(7), []byte{0x08, 0x07, 0x10, 0xff}}}},
		"of the lease 8": {"key": nil,
			"lease": {{lease.Key(7), []byte{0x08, 0x08}}}},
		"TTL 9000000001 s": {"key": nil,
			"lease": {{lease.Key(7),
				appendLease(nil, &lease.Lease{LeaseRef: kv.LeaseRef{ID: 7},
					TTL: kv.MaxLeaseTTL + 1})}}},
		`bucket alarm, key "\xff"`: {"key": nil, "alarm": {{[]byte("\xff"), nil}}},
		`bucket authUsers, key "bob"`: {"key": nil,
			"authUsers": {{[]byte("bob"), []byte("\n\x03eve")}}},
		`bucket authRoles, key "r"`:   {"key": nil, "authRoles": {{[]byte("r"), []byte("\xff")}}},
		"enabled without a user root": {"key": nil, "auth": {{[]byte("authEnabled"), []byte{1}}}},
		`bucket auth, key "authRevisio`: {"key": nil,
			"auth": {{[]byte("authRevision"), []byte{1}}}},
	} {
		_, _, err := readAll(raw(t, buckets))
		if !errors.Is(err, ErrCorrupt) || !bytes.Contains([]byte(err.Error()), []byte(name)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An error of the records, of the visitor and of the output ends the work.
func TestErrors(t *testing.T) {
	own := errors.New("own")
	records := history(t)
	l := NewLayout()
	for _, r := range records {
		if err := l.Add(r.rev, r.tombstone, r.data); err != nil {
			t.Fatal(err)
		}
	}
	p, err := l.Finish(t.Context(), everything(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(&bytes.Buffer{}, p, &list{all: records[:2], err: own}); err != own {
		t.Error(err)
	}
	if err := Write(failing{own}, p, &list{all: records}); err != own {
		t.Error(err)
	}
	if err := Write(&bytes.Buffer{}, p, &list{all: records[:2]}); err == nil {
		t.Error("fewer records than were counted")
	}
	if err := NewLayout().Add(kv.Rev{Main: 3}, true, []byte("x")); err == nil {
		t.Error("a deletion of nothing")
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func FuzzOpen(f *testing.F) {
	f.Add(write(f, everything(f), history(f)))
	f.Add(write(f, &Contents{Compact: -1}, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, records, err := readAll(b)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
		for i := 1; i < len(records) && err == nil; i++ {
			if !records[i-1].rev.Less(records[i].rev) {
				t.Fatal(fmt.Sprint("the records are not in order: ", records[i-1].rev,
					records[i].rev))
			}
		}
		if _, err := ReadStatus(bytes.NewReader(b), int64(len(b)), nil); err != nil &&
			!errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}
