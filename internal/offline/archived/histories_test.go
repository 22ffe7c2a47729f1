package archived

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lineage"
	"vigil/internal/store/archive"
	"vigil/internal/vfs/memfs"
)

// A revision is one state: two members that restore it are of one cluster only if they have the
// same, also if a base was archived between the two restores, after entries that made no revision.
func TestRevisionIsOneState(t *testing.T) {
	n, fsys := newNode(t, 40)
	n.work(5)
	earlier := n.base(false)
	n.apply(&fsm.Request{Put: putRequest("a")})
	rev := n.store.Revision()
	log := n.send()
	first := restoreTo(t, n.open(), Target{Revision: rev})
	n.apply(&fsm.Request{Auth: &kv.AuthRequest{Op: kv.UserAdd, User: "later", NoPassword: true}})
	n.base(false)
	second := restoreTo(t, n.open(), Target{Revision: rev})
	if first.sum.ClusterID == second.sum.ClusterID && first.sum.Users != second.sum.Users {
		t.Errorf("one cluster with two states: %d and %d users", first.sum.Users, second.sum.Users)
	}
	if second.sum.Users != first.sum.Users {
		t.Errorf("%d users, %d right after the revision was made", second.sum.Users,
			first.sum.Users)
	}
	// If only the later base has the revision, its state is another one, of another cluster.
	n.must(fsys.Remove("/bucket/" + log))
	third := restoreTo(t, n.open(), Target{Revision: rev})
	if third.store.Revision() == 0 || third.res.Base == earlier.Name() ||
		third.sum.ClusterID == first.sum.ClusterID {
		t.Errorf("%+v is of cluster %x as is %+v", third.res, third.sum.ClusterID, first.res)
	}
}

// otherHistory is a copy of an archive's cluster that went another way after some entries: as one
// that was made a cluster of its own from the disk of a member, and archived into the same bucket.
// It returns the name of a log object with its entries.
func otherHistory(n *node, entries int) string {
	n.t.Helper()
	w := n.seal.NewLog()
	from := n.index - uint64(entries) + 1
	o := *n
	o.index, o.term = from-1, n.term+5
	for range entries + 3 {
		o.index++
		n.must(w.Add(entry(&o, &fsm.Request{Put: putRequest("other")})))
	}
	s, err := w.Seal(archive.LogInfo{Sender: 9, Before: 1, After: n.store.Revision() + 100,
		FirstTime: n.now, LastTime: n.now, Claim: o.claim()})
	n.must(err)
	n.put(s.Name, s.Data)
	return s.Name
}

// Entries of another history are not applied to a state: two entries of one index have one term.
func TestOtherHistory(t *testing.T) {
	for what, base := range map[string]bool{"after entries": false, "after a base": true} {
		n, _ := newNode(t, 41)
		n.work(5)
		n.base(false)
		n.work(10)
		n.send()
		if base {
			n.base(false)
		}
		name := otherHistory(n, 4)
		a := n.open()
		r := restoreTo(t, a, Target{})
		if r.store.Revision() != n.store.Revision() ||
			r.hash(t) != hashAt(t, n.store, compactRevision(n.store)) {
			t.Errorf("%s: revision %d of a mixture, the cluster had %d", what, r.store.Revision(),
				n.store.Revision())
		}
		if !slices.ContainsFunc(r.res.Damages,
			func(d Damage) bool { return d.Name == name && strings.Contains(d.Reason, "term") }) ||
			len(r.res.Missing) == 0 {
			t.Errorf("%s: not reported: %+v", what, r.res)
		}
		if v := verify(t, n.open(), false); !slices.ContainsFunc(v.Damages,
			func(d Damage) bool { return d.Name == name }) {
			t.Errorf("%s: verify: %+v", what, v)
		}
		_, res, err := n.open().Restore(context.Background(),
			Target{Revision: n.store.Revision() + 2}, restoreOptions(memfs.New(), "d"))
		if err == nil {
			t.Errorf("%s: a revision of the mixture: %+v", what, res)
		}
	}
}

// An error about a target says nothing wrong about the archive's end.
func TestEndOfArchive(t *testing.T) {
	n, _ := newNode(t, 43)
	n.work(5)
	b := n.base(false)
	for range 5 {
		n.apply(&fsm.Request{Put: putRequest("a")})
	}
	n.send()
	_, _, err := n.open().Restore(context.Background(), Target{Index: n.index + 1},
		restoreOptions(memfs.New(), "d"))
	if err == nil || strings.Contains(err.Error(), "revision") &&
		!strings.Contains(err.Error(), "revision "+itoa(n.store.Revision())) {
		t.Errorf("%v; the base has revision %d, the last entry %d", err, b.Revision,
			n.store.Revision())
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// A verification notices another history also where a restore does not use its objects, or uses no
// others.
func TestVerifyHistories(t *testing.T) {
	n, _ := newNode(t, 46)
	n.work(5)
	n.base(false)
	n.work(6)
	n.mark()
	first := n.send()
	if v := verify(t, n.open(), false); len(v.Damages) > 0 {
		t.Fatalf("%+v", v)
	}
	from, last, _ := archive.ParseLogName(first)
	shadows := otherHistory(n, int(last-from)+1) // begins where the first does, and is longer
	v := verify(t, n.open(), false)
	if len(v.Damages) == 0 || !strings.Contains(v.Damages[0].Reason, "two histories") ||
		!strings.Contains(v.Damages[0].String(), shadows) ||
		!strings.Contains(v.Damages[0].String(), first) {
		t.Errorf("%s and %s: %+v", first, shadows, v.Damages)
	}
	// A base of a cluster that began again with lower terms.
	n, _ = newNode(t, 47)
	n.work(5)
	n.base(false)
	n.work(6)
	n.send()
	b := n.last
	b.Index, b.Term = n.index+100, 1
	data, err := b.Encode()
	n.must(err)
	n.put(b.Name(), data)
	for _, sample := range []bool{false, true} {
		if v := verify(t, n.open(), sample); len(v.Damages) != 1 || v.Damages[0].Name != b.Name() ||
			!strings.Contains(v.Damages[0].Reason, "two histories") {
			t.Errorf("%+v", v.Damages)
		}
	}
}

// The end of many leases is one request with a revision for each lease, or more for a lease with
// many keys: a target between two of them is that revision, with the keys and leases of it, and no
// later one.
func TestRevisionWithinRequest(t *testing.T) {
	n, _ := newNode(t, 48)
	n.work(3)
	n.base(false)
	const leases = 6
	var ends kv.LeaseExpireRequest
	ends.Term = n.term
	for i := range int64(leases) {
		id := 1000 + i
		n.apply(&fsm.Request{LeaseGrant: &kv.LeaseGrantRequest{ID: id, TTL: 100}})
		ends.Leases = append(ends.Leases, kv.LeaseRef{ID: id, Granted: n.index})
		n.apply(&fsm.Request{Put: &kv.PutRequest{Key: []byte("leased" + itoa(i)),
			Value: []byte("v"), Lease: id}})
	}
	first := n.store.Revision()
	n.apply(&fsm.Request{LeaseExpire: &ends}, &fsm.Request{Put: putRequest("after")})
	n.send()
	if last := n.store.Revision(); last != first+leases+1 {
		t.Fatalf("revision %d after %d", last, first)
	}
	for rev := first; rev <= first+leases+1; rev++ {
		past, err := n.open().OpenPast(t.Context(), Target{Revision: rev}, memfs.New(), "d", nil)
		if err != nil {
			t.Fatal(err)
		}
		keys := 0
		for k, err := range past.Keys(t.Context(), "leased", "leasee") {
			if err != nil {
				t.Fatal(err)
			}
			if _, ok := past.Lease(k.Lease); !ok {
				t.Errorf("revision %d: %s has no lease", rev, k.Key)
			}
			keys++
		}
		if want := int(max(leases-(rev-first), 0)); past.Revision != rev || keys != want {
			t.Errorf("revision %d: %d with %d keys, want %d", rev, past.Revision, keys, want)
		}
		if err := past.Close(); err != nil {
			t.Fatal(err)
		}
		if r := restoreTo(t, n.open(), Target{Revision: rev}); r.store.Revision() != rev ||
			r.sum.Leases != int(max(leases-(rev-first), 0)) {
			t.Errorf("revision %d: restored %d with %d leases", rev,
				r.store.Revision(), r.sum.Leases)
		}
	}
}

// An object with entries of another leader of the same term is not applied, although terms and
// indexes go on: its claim is another one.
func TestOtherClaim(t *testing.T) {
	for what, claims := range map[string]bool{"the entries have the claim": true,
		"only objects have claims": false} {
		n, _ := newNode(t, 50)
		n.work(3)
		if claims {
			n.apply(&fsm.Request{Claim: &lineage.Claim{Term: n.term, ID: lineage.ID(n.claim().ID)}})
		}
		n.base(false)
		n.work(5)
		n.mark()
		n.send()
		o := *n
		w := n.seal.NewLog()
		for range 3 {
			o.index++
			n.must(w.Add(entry(&o, &fsm.Request{Put: putRequest("other")})))
		}
		s, err := w.Seal(archive.LogInfo{Sender: 9, Before: n.store.Revision(),
			After: n.store.Revision() + 3, FirstTime: n.now, LastTime: n.now,
			Claim: archive.Claim{Term: archive.Hex64(n.term), ID: archive.ID{99}}})
		n.must(err)
		n.put(s.Name, s.Data)
		v := verify(t, n.open(), false)
		// Which of two is the right one is known if the entries say so.
		if len(v.Damages) != 1 || claims && v.Damages[0].Name != s.Name ||
			!strings.Contains(v.Damages[0].Reason, "two histories") {
			t.Errorf("%s: %+v", what, v.Damages)
		}
		if !claims {
			continue
		}
		if r := restoreTo(t, n.open(), Target{}); r.store.Revision() != n.store.Revision() ||
			r.hash(t) != hashAt(t, n.store, compactRevision(n.store)) {
			t.Errorf("%s: restored revision %d, the cluster had %d", what, r.store.Revision(),
				n.store.Revision())
		}
	}
}
