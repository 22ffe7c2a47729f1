package health

import (
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Compared has a member's answers for the comparison of data.
type Compared struct {
	// Hash is the hash of its history up to the newest revision that all members have; nil without
	// an answer.
	Hash *etcdserverpb.HashKVResponse
	Err  error
	// Later is a status that the member reported after the round.
	Later *etcdserverpb.StatusResponse
}

const nextDiffers = "delete no data yet: compare vigilctl endpoint hashkv --cluster, the keys of the members and their logs; then remove the wrong member, delete its data directory and add it again"

// checkData compares the data of the members of one cluster.
func (e *Examination) checkData(r *report) {
	e.compared(r, e.answering())
	if len(e.Data) == 0 {
		return
	}
	e.checkRevisions(r)
	votes, first := map[uint32]int{}, -1
	voted, members := map[uint64]bool{}, 0 // a slow member may appear with two addresses
	for i := range e.Data {
		c := &e.Data[i]
		if id := e.Readings[i].ID(); id == 0 || !voted[id] {
			voted[id] = true
			members++
		} else {
			continue
		}
		if e.Readings[i].Value(DamageFound) > 0 {
			// The member may have computed its hash before the damage.
			r.skipMember(e.NameOf(&e.Readings[i]),
				"its data are damaged, and a hash may not show that")
			c.Hash = nil
			continue
		}
		if c.Hash == nil {
			if st := e.Readings[i].Status; st.GetIsLearner() {
				r.skipMember(e.NameOf(&e.Readings[i]), "a learner does not hash its data")
			} else if c.Err != nil {
				why := "its data could not be compared: " + line(c.Err)
				if strings.Contains(why, "deadline") {
					why += "; use a larger --command-timeout if the store is large"
				}
				r.skipMember(e.NameOf(&e.Readings[i]), why)
			}
			continue
		}
		if first < 0 {
			first = i
		}
		if e.comparable(first, i) {
			votes[c.Hash.Hash]++
		} else if !e.Foreign(&e.Readings[i]) {
			r.skipMember(e.NameOf(&e.Readings[i]),
				fmt.Sprintf("its hash is of other revisions than that of %s: one of them was compacted in between; compare again", e.NameOf(&e.Readings[first])))
		}
	}
	if len(votes) < 2 {
		return
	}
	most, at := uint32(0), int64(0)
	for hash, n := range votes {
		if n > votes[most] {
			most = hash
		}
	}
	for i := range e.Data {
		c := &e.Data[i]
		if c.Hash == nil || !e.comparable(first, i) {
			continue
		}
		at = c.Hash.HashRevision
		if 2*votes[most] > members && c.Hash.Hash != most {
			r.addFinding(Critical, e.NameOf(&e.Readings[i]),
				fmt.Sprintf("its data differ from those of the majority at revision %d: hash %d and not %d", at, c.Hash.Hash, most), nextDiffers, "")
		}
	}
	if 2*votes[most] <= members {
		r.addFinding(Critical, "",
			fmt.Sprintf("the data of the members differ at revision %d, and no majority of them has the same", at), nextDiffers, "")
	}
}

// compared skips a comparison of a single member, unless the cluster has only one. n is the number
// of members to compare.
func (e *Examination) compared(r *report, n int) {
	if n == 1 && len(e.Members) != 1 {
		r.skipMember("", "known of one member only: there is nothing to compare it with")
	}
}

// answering returns how many members answer.
func (e *Examination) answering() (n int) {
	for i := range e.Readings {
		if e.Readings[i].Status != nil {
			n++
		}
	}
	return n
}

// comparable reports whether two hashes cover the same range of revisions in one cluster.
func (e *Examination) comparable(i, j int) bool {
	a, b := e.Data[i].Hash, e.Data[j].Hash
	return a.HashRevision == b.HashRevision && a.CompactRevision == b.CompactRevision &&
		a.GetHeader().GetClusterId() == b.GetHeader().GetClusterId()
}

// checkRevisions finds members that lack a revision although they have applied the entries up to
// it. The hashes cannot show this: they cover revisions that all members have.
func (e *Examination) checkRevisions(r *report) {
	for i := range e.Data {
		late, now := e.Readings[i].Status, e.Data[i].Later
		for j := range e.Data {
			had, by := e.Readings[j].Status, e.Data[j].Later
			if i == j || late == nil || now == nil || had == nil || by == nil ||
				late.GetHeader().GetClusterId() != had.GetHeader().GetClusterId() {
				continue
			}
			// One member's index was read after its revision, the other's before.
			if late.RaftAppliedIndex >= by.RaftAppliedIndex &&
				now.GetHeader().GetRevision() < had.GetHeader().GetRevision() {
				r.addFinding(Critical, e.NameOf(&e.Readings[i]),
					fmt.Sprintf("is at revision %d where %s is at %d, after the same entries: it lacks data",
						now.GetHeader().GetRevision(), e.NameOf(&e.Readings[j]),
						had.GetHeader().GetRevision()), nextDiffers, "")
				break
			}
		}
	}
}
