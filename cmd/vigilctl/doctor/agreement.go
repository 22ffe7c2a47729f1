package doctor

import (
	"context"
	"fmt"
	"math"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/survey"
)

// compared is what a member said to compare its data with those of the others.
type compared struct {
	// hash is over its history up to the revision that all have; nil if it has not said.
	hash *etcdserverpb.HashKVResponse
	err  error
	// later is its status after the first one.
	later *etcdserverpb.StatusResponse
}

// compare asks members for hashes at the newest revision that all of them have.
func compareData(ctx context.Context, l *survey.Survey, r *survey.Round) []compared {
	out := make([]compared, len(l.Members))
	revision, answered := int64(math.MaxInt64), 0
	for i := range r.Readings {
		if h := r.Readings[i].Status.GetHeader(); h != nil {
			revision = min(revision, h.Revision)
			answered++
		}
	}
	if answered < 2 {
		return out
	}
	l.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		if r.Readings[i].Status == nil {
			return
		}
		at, err := l.Client.At(m.Endpoint)
		if err != nil {
			out[i].err = err
			return
		}
		if out[i].later, err = at.Status(ctx); err == nil {
			out[i].hash, err = at.HashKV(ctx, revision)
		}
		out[i].err = err
	})
	return out
}

const nextDiffers = "do not delete anything yet: compare vigilctl endpoint hashkv --cluster and what the members hold, and see their logs; then remove the member that is wrong, delete its data directory and add it again"

// agree compares what members hold. Those of several clusters are not compared.
func (e *examined) agree(found report) {
	if len(e.data) == 0 {
		return
	}
	e.agreeRevisions(found)
	votes, first := map[uint32]int{}, -1
	for i := range e.data {
		c := &e.data[i]
		if c.hash == nil {
			if c.err != nil {
				found(note, e.NameOf(&e.Readings[i]), "its data could not be compared with those of the others: "+survey.ErrorLine(c.err), "look again; give a larger --command-timeout if the store is large")
			}
			continue
		}
		if first < 0 {
			first = i
		}
		if e.comparable(first, i) {
			votes[c.hash.Hash]++
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
	for i := range e.data {
		c := &e.data[i]
		if c.hash == nil || !e.comparable(first, i) {
			continue
		}
		at = c.hash.HashRevision
		if 2*votes[most] > len(e.data) && c.hash.Hash != most {
			found(critical, e.NameOf(&e.Readings[i]), fmt.Sprintf("its data differ from those of the majority at revision %d: hash %d and not %d", at, c.hash.Hash, most), nextDiffers)
		}
	}
	if 2*votes[most] <= len(e.data) {
		found(critical, "", fmt.Sprintf("the data of the members differ at revision %d, and no majority of them has the same", at), nextDiffers)
	}
}

// comparable reports whether the hashes of two members are over the same.
func (e *examined) comparable(i, j int) bool {
	a, b := e.data[i].hash, e.data[j].hash
	return a.HashRevision == b.HashRevision && a.CompactRevision == b.CompactRevision &&
		a.GetHeader().GetClusterId() == b.GetHeader().GetClusterId()
}

// agreeRevisions finds members that have applied an entry and lack the revision that another one had by then: a hash at a
// revision that all have says nothing about a member that is empty.
func (e *examined) agreeRevisions(found report) {
	for i := range e.data {
		late, now := e.Readings[i].Status, e.data[i].later
		for j := range e.data {
			had, by := e.Readings[j].Status, e.data[j].later
			if i == j || late == nil || now == nil || had == nil || by == nil || late.GetHeader().GetClusterId() != had.GetHeader().GetClusterId() {
				continue
			}
			// The index was read after the revision of the one, and before that of the other.
			if late.RaftAppliedIndex >= by.RaftAppliedIndex && now.GetHeader().GetRevision() < had.GetHeader().GetRevision() {
				found(critical, e.NameOf(&e.Readings[i]), fmt.Sprintf("is at revision %d where %s is at %d, after the same entries: it lacks data",
					now.Header.Revision, e.NameOf(&e.Readings[j]), had.Header.Revision), nextDiffers)
				break
			}
		}
	}
}
