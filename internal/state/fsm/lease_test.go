package fsm

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/lease"
	"vigil/internal/store/history"
)

// lease makes r a request about leases; the ids are few, so that some hit.
func (g generator) lease(r *Request) {
	id := func() int64 { return g.Int64N(8) - 1 }
	ref := func() kv.LeaseRef { return kv.LeaseRef{ID: id(), Granted: g.Uint64N(30)} }
	switch g.IntN(4) {
	case 0:
		r.LeaseGrant = &kv.LeaseGrantRequest{ID: id(), TTL: g.int()}
	case 1:
		r.LeaseRevoke = &kv.LeaseRevokeRequest{ID: id()}
	case 2:
		r.LeaseCheckpoint = &kv.LeaseCheckpointRequest{Term: g.Uint64N(3)}
		for range g.IntN(3) {
			r.LeaseCheckpoint.Checkpoints = append(r.LeaseCheckpoint.Checkpoints, kv.LeaseCheckpoint{LeaseRef: ref(), Remaining: g.int(), Since: g.Uint64N(30)})
		}
	case 3:
		r.LeaseExpire = &kv.LeaseExpireRequest{Term: g.Uint64N(3)}
		for range g.IntN(3) {
			r.LeaseExpire.Leases = append(r.LeaseExpire.Leases, ref())
		}
	}
}

// aim makes what the leader asks for about leases mean leases that there are.
func aim(rng *rand.Rand, m *Machine, r *Request) {
	for _, l := range m.Leases().All() {
		switch {
		case rng.IntN(3) > 0:
		case r.LeaseCheckpoint != nil:
			r.LeaseCheckpoint.Term = 1
			r.LeaseCheckpoint.Checkpoints = append(r.LeaseCheckpoint.Checkpoints, kv.LeaseCheckpoint{LeaseRef: l.LeaseRef, Remaining: rng.Int64N(l.TTL + 1), Since: l.Since - uint64(rng.IntN(2))})
		default:
			r.LeaseExpire.Term = 1
			r.LeaseExpire.Leases = append(r.LeaseExpire.Leases, l.LeaseRef)
		}
	}
}

func attach(key string, id int64) *Request {
	return &Request{Put: &kv.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: id}}
}

func grant(id, ttl int64) *Request {
	return &Request{LeaseGrant: &kv.LeaseGrantRequest{ID: id, TTL: ttl}}
}

func revoke(id int64) *Request { return &Request{LeaseRevoke: &kv.LeaseRevokeRequest{ID: id}} }

// Everything about a lease may be in one group, and is in order.
func TestLeaseInOneGroup(t *testing.T) {
	b := newBox(t)
	res := b.entry(raftpb.EntryNormal, group(t, GroupHeader{},
		grant(5, 60), attach("b", 5), attach("a", 5), attach("c", 5), put("c", "free"), grant(5, 60), grant(6, 60), attach("d", 6),
		&Request{Put: &kv.PutRequest{Key: []byte("d"), Value: []byte("w"), IgnoreLease: true}},
		revoke(5), revoke(5), attach("e", 5), grant(5, 7), attach("f", 5),
	), true).Results
	for i, want := range []error{5: kv.ErrLeaseExists, 10: kv.ErrLeaseNotFound, 11: kv.ErrLeaseNotFound, 13: nil} {
		if !errors.Is(res[i].Err, want) || want == nil && res[i].Err != nil {
			t.Errorf("request %d: %v, want %v", i, res[i].Err, want)
		}
	}
	if got := *res[0].Lease; got != (kv.LeaseResult{Revision: 1, ID: 5, TTL: 60}) {
		t.Errorf("grant: %+v", got)
	}
	if got := *res[9].Lease; got != (kv.LeaseResult{Revision: 8, Ended: 1}) {
		t.Errorf("revocation: %+v", got)
	}
	p := b.commit()
	var deleted []string
	for _, e := range p.Events {
		if e.Delete {
			deleted = append(deleted, fmt.Sprintf("%s %d.%d", e.Key, e.Rev.Main, e.Rev.Sub))
		}
	}
	if !slices.Equal(deleted, []string{"a 8.0", "b 8.1"}) {
		t.Errorf("deleted %q", deleted)
	}
	b.reopen()
	s := b.m.Leases()
	if l, ok := s.Lookup(5); !ok || l.TTL != 7 || !slices.Equal(s.Keys(5), []string{"f"}) || !slices.Equal(s.Keys(6), []string{"d"}) {
		t.Errorf("after reopening: %+v, %q, %q", l, s.Keys(5), s.Keys(6))
	}
}

// anyLease lets puts name leases that do not exist, as keys of a restored backup do.
type anyLease struct{}

func (anyLease) Exists(int64) bool { return true }

// Keys that name a lease which does not exist belong to it once its id is granted, and end with it: on a member
// that was restarted in between as on one that was not.
func TestLeaseOfOrphans(t *testing.T) {
	run := func(restarts ...int) (dumps []string) {
		b := newBox(t)
		for i := range 30 {
			if _, err := b.m.store.Put(&kv.PutRequest{Key: fmt.Appendf(nil, "k%02d", i), Lease: 5}, anyLease{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.m.store.Put(&kv.PutRequest{Key: []byte("other"), Lease: 6}, anyLease{}); err != nil {
			t.Fatal(err)
		}
		b.commit()
		b.reopen() // a restored store is opened
		for step, r := range []*Request{
			put("k00", "free"), // has no lease any more
			{Put: &kv.PutRequest{Key: []byte("k01"), IgnoreLease: true}},
			{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("k02")}},
			grant(5, 60), attach("late", 5), attach("other", 5), put("k03", "free"), revoke(5), grant(5, 60), grant(6, 60), attach("again", 5), revoke(6),
		} {
			b.entry(raftpb.EntryNormal, group(t, GroupHeader{}, r), true)
			b.commit()
			if slices.Contains(restarts, step) {
				b.reopen()
			}
			dumps = append(dumps, fmt.Sprintf("step %d: attached to 5 %q, to 6 %q; %s", step, b.m.Leases().Keys(5), b.m.Leases().Keys(6), b.dump()))
		}
		return dumps
	}
	want := run()
	if !strings.Contains(want[6], `"k04"`) || !strings.Contains(want[6], `"other"`) || strings.Contains(want[6], `"k03"`) {
		t.Errorf("attached after the grant: %s", want[6])
	}
	for step := range want {
		if got := run(step); !slices.Equal(got, want) {
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("restarted after step %d:\n%s\nwithout a restart:\n%s", step, got[i], want[i])
				}
			}
		}
	}
}

// What a leader says about time has no effect once another term has begun, nor on a later life of an id.
func TestLeaseTermsAndLives(t *testing.T) {
	b := newBox(t)
	one := func(r *Request) Result {
		t.Helper()
		return b.entry(raftpb.EntryNormal, group(t, GroupHeader{}, r), true).Results[0]
	}
	one(grant(5, 60))
	one(attach("k", 5))
	old, _ := b.m.Leases().Lookup(5)
	expire := func(term uint64, ref kv.LeaseRef) *Request {
		return &Request{LeaseExpire: &kv.LeaseExpireRequest{Term: term, Leases: []kv.LeaseRef{ref}}}
	}
	left := func(term uint64, ref kv.LeaseRef, remaining int64) *Request {
		return &Request{LeaseCheckpoint: &kv.LeaseCheckpointRequest{Term: term, Checkpoints: []kv.LeaseCheckpoint{{LeaseRef: ref, Remaining: remaining, Since: ref.Granted}}}}
	}
	for _, r := range []*Request{expire(0, old.LeaseRef), expire(2, old.LeaseRef), left(2, old.LeaseRef, 1)} {
		if res := one(r); !errors.Is(res.Err, kv.ErrLeaderChanged) {
			t.Errorf("another term: %+v", res)
		}
	}
	if res := one(left(1, old.LeaseRef, 30)); res.Err != nil {
		t.Error(res.Err)
	}
	b.commit()
	b.reopen()
	if l, _ := b.m.Leases().Lookup(5); l.Remaining != 30 || l.Left() != 30 {
		t.Errorf("after a checkpoint and reopening: %+v", l)
	}
	// The whole TTL is given back: what was measured before has no effect any more, also after reopening.
	one(left(1, old.LeaseRef, 0))
	one(left(1, old.LeaseRef, 20))
	b.commit()
	b.reopen()
	one(left(1, old.LeaseRef, 10))
	now, _ := b.m.Leases().Lookup(5)
	if now.Left() != 60 || now.Since <= old.Since {
		t.Errorf("a checkpoint of before the whole TTL was given back: %+v", now)
	}
	one(&Request{LeaseCheckpoint: &kv.LeaseCheckpointRequest{Term: 1, Checkpoints: []kv.LeaseCheckpoint{{LeaseRef: old.LeaseRef, Remaining: 40, Since: now.Since}}}})
	if l, _ := b.m.Leases().Lookup(5); l.Left() != 40 {
		t.Errorf("a checkpoint of after it: %+v", l)
	}
	one(revoke(5))
	one(grant(5, 60))
	one(left(1, old.LeaseRef, 1))
	if res := one(expire(1, old.LeaseRef)); res.Err != nil || res.Lease.Ended != 0 {
		t.Errorf("expiry of a former life: %+v", res)
	}
	l, _ := b.m.Leases().Lookup(5)
	if l.Remaining != 0 {
		t.Errorf("the new life: %+v", l)
	}
	if res := one(expire(1, l.LeaseRef)); res.Err != nil || res.Lease.Ended != 1 {
		t.Errorf("expiry: %+v", res)
	}
	b.commit()
}

func TestLeasesUnderAlarms(t *testing.T) {
	b := newBox(t)
	one := func(r *Request) error {
		t.Helper()
		return b.entry(raftpb.EntryNormal, group(t, GroupHeader{Proposer: 2}, r), true).Results[0].Err
	}
	one(grant(1, 60))
	one(grant(2, 60))
	for _, c := range []struct {
		alarm          kv.AlarmType
		grant, revoked error
	}{{kv.AlarmNoSpace, kv.ErrNoSpace, nil}, {kv.AlarmCorrupt, kv.ErrCorrupt, kv.ErrCorrupt}} {
		change := &kv.AlarmChange{Alarm: kv.Alarm{MemberID: 2, Type: c.alarm}}
		one(&Request{Alarm: change})
		if err := one(grant(3, 60)); !errors.Is(err, c.grant) {
			t.Errorf("%v: grant: %v", c.alarm, err)
		}
		if err := one(revoke(1)); !errors.Is(err, c.revoked) || c.revoked == nil && err != nil {
			t.Errorf("%v: revocation: %v", c.alarm, err)
		}
		change.Clear = true
		one(&Request{Alarm: change})
	}
	b.commit()
}

// Puts, deletions, grants, revocations and expiries against a map, over restarts.
func TestLeasesAgainstModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	b := newBox(t)
	keys, granted := map[string]int64{}, map[int64]uint64{} // lease by key, index of the grant by lease
	for i := range 3000 {
		id, key := 1+rng.Int64N(6), fmt.Sprint(rng.IntN(60))
		end := func() int {
			n := 0
			for k, l := range keys {
				if l == id {
					delete(keys, k)
					n++
				}
			}
			delete(granted, id)
			return n
		}
		_, exists := granted[id]
		before := b.m.store.Revision()
		moved := int64(0) // by how much the revision is to move
		var r *Request
		var want error
		switch n := rng.IntN(20); {
		case n < 2:
			if r = grant(id, 100); exists {
				want = kv.ErrLeaseExists
			} else {
				granted[id] = b.index + 1
			}
		case n < 3:
			if r = revoke(id); !exists {
				want = kv.ErrLeaseNotFound
			} else if end() > 0 {
				moved = 1
			}
		case n < 4:
			ref := kv.LeaseRef{ID: id, Granted: granted[id]}
			r = &Request{LeaseExpire: &kv.LeaseExpireRequest{Term: 1, Leases: []kv.LeaseRef{ref, ref}}}
			if exists && end() > 0 {
				moved = 1
			}
		case n < 6:
			r = &Request{DeleteRange: &kv.DeleteRangeRequest{Key: []byte(key)}}
			if _, ok := keys[key]; ok {
				moved = 1
			}
			delete(keys, key)
		case n < 8:
			r, moved, keys[key] = put(key, "v"), 1, 0
		case n < 10:
			r = &Request{Txn: &kv.TxnRequest{Success: []kv.Op{
				{Delete: &kv.DeleteRangeRequest{Key: []byte("1"), End: []byte("2")}},
				{Put: &kv.PutRequest{Key: []byte("x" + key), Lease: id}}}}}
			if want = kv.ErrLeaseNotFound; exists {
				want, moved = nil, 1
				maps.DeleteFunc(keys, func(k string, _ int64) bool { return k >= "1" && k < "2" })
				keys["x"+key] = id
			}
		default:
			if r = attach(key, id); !exists {
				want = kv.ErrLeaseNotFound
			} else {
				moved, keys[key] = 1, id
			}
		}
		res := b.entry(raftpb.EntryNormal, group(t, GroupHeader{}, r), rng.IntN(2) == 0).Results[0]
		if !errors.Is(res.Err, want) || want == nil && res.Err != nil {
			t.Fatalf("seed %d, step %d: %+v: %v, want %v", seed, i, r, res.Err, want)
		}
		if got := b.m.store.Revision() - before; got != moved {
			t.Fatalf("seed %d, step %d: %+v moved the revision by %d, want %d", seed, i, r, got, moved)
		}
		if rng.IntN(10) > 0 {
			continue
		}
		b.commit()
		if rng.IntN(10) == 0 {
			b.reopen()
		}
		have := map[string]int64{}
		for id := range granted {
			if l, ok := b.m.Leases().Lookup(id); !ok || l.Granted != granted[id] {
				t.Fatalf("seed %d, step %d: lease %d is %+v", seed, i, id, l)
			}
			for _, k := range b.m.Leases().Keys(id) {
				have[k] = id
			}
		}
		leased := maps.Clone(keys)
		maps.DeleteFunc(leased, func(_ string, l int64) bool { return l == 0 })
		if !maps.Equal(have, leased) || b.m.Leases().Len() != len(granted) || !maps.Equal(maps.Collect(b.store.Leased()), leased) {
			t.Fatalf("seed %d, step %d: attached are %v, want %v", seed, i, have, leased)
		}
	}
	b.commit()
}

func TestLeaseRecordsAreChecked(t *testing.T) {
	b := newBox(t)
	if err := b.m.store.SetMeta(history.Meta{Bucket: leaseBucket, Key: lease.Key(5), Value: []byte("?")}); err != nil {
		t.Fatal(err)
	}
	b.index++
	b.commit()
	if _, err := New(b.log, b.store); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("a damaged record: %v", err)
	}
	if _, err := ReadContents(b.log.AllMeta()); !errors.Is(err, kv.ErrCorrupt) {
		t.Errorf("a damaged record, read: %v", err)
	}
}
