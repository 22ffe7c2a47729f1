package health

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Round has the answers of all members at about the same time.
type Round struct {
	At       time.Time
	Readings []Reading                   // one for each queried member
	Members  []*etcdserverpb.Member      // as the cluster lists them; nil if no member answered
	Alarms   []*etcdserverpb.AlarmMember // see FindAlarms
	// ClusterID is the cluster whose members are in Members, 0 if unknown.
	ClusterID uint64
	ListErr   error // why Members is unknown
}

// Answered reports whether any member reported its status.
func (r *Round) Answered() bool {
	return slices.ContainsFunc(r.Readings, func(x Reading) bool { return x.Status != nil })
}

// Leader returns the member that most members of the cluster follow, 0 if there is none.
func (r *Round) Leader() uint64 {
	votes := map[uint64]int{}
	var best uint64
	for i := range r.Readings {
		if id := r.Readings[i].Status.GetLeader(); id != 0 && !r.Foreign(&r.Readings[i]) {
			votes[id]++
			if votes[id] > votes[best] {
				best = id
			}
		}
	}
	return best
}

// Name returns the name of a member, or its ID if it has none.
func (r *Round) Name(id uint64) string {
	for _, m := range r.Members {
		if m.ID == id && m.Name != "" {
			return m.Name
		}
	}
	return hexadecimal(id)
}

// NameOf returns the name of the reading's member, or the endpoint if the member is unknown.
func (r *Round) NameOf(x *Reading) string {
	id := cmp.Or(x.ID(), x.Advertised)
	if r.Foreign(x) || r.Stranger(x) {
		id = x.Advertised // without its own entry in the list
	}
	switch {
	case id != 0:
		return r.Name(id)
	case x.Waits != nil && x.Waits.Name != "":
		return clip(x.Waits.Name, maxWaitName) // the name that it reports
	}
	return x.Endpoint
}

// Lag returns how many of the leader's entries a member still has to apply. ok is false if unknown.
func (r *Round) Lag(x *Reading) (entries int64, ok bool) {
	leader := r.Leader()
	if leader == 0 || x.Status == nil {
		return 0, false
	}
	for i := range r.Readings {
		if l := &r.Readings[i]; l.ID() == leader {
			// The members answered at different instants: a follower may seem to be ahead.
			return max(0, int64(l.Status.RaftIndex)-int64(x.Status.RaftAppliedIndex)), true
		}
	}
	return 0, false
}

// Foreign reports whether a member belongs to another cluster than Members.
func (r *Round) Foreign(x *Reading) bool {
	return x.Status != nil && r.ClusterID != 0 && x.Status.GetHeader().GetClusterId() != r.ClusterID
}

// Stranger reports whether a member is missing from the cluster's list of members and knows no
// leader. It was removed while it could not be notified. A missing member with a leader was just
// added.
func (r *Round) Stranger(x *Reading) bool {
	return x.Status != nil && x.Status.Leader == 0 && !r.Foreign(x) && len(r.Members) > 0 &&
		!slices.ContainsFunc(r.Members, func(m *etcdserverpb.Member) bool { return m.ID == x.ID() })
}

// Revision returns the newest revision in the headers of all answers.
func (r *Round) Revision() int64 {
	var rev int64
	for i := range r.Readings {
		rev = max(rev, r.Readings[i].Status.GetHeader().GetRevision())
	}
	return rev
}

// Cluster returns the cluster's ID and the newest term in the headers of all answers.
func (r *Round) Cluster() (id uint64, term uint64) {
	for i := range r.Readings {
		if h := r.Readings[i].Status.GetHeader(); h != nil {
			id, term = h.ClusterId, max(term, h.RaftTerm)
		}
	}
	return id, term
}

// Before returns the reading of the same endpoint in an older round, nil if that has no metrics.
func (r *Round) Before(old *Round, i int) *Reading {
	if old == nil || i >= len(old.Readings) || old.Readings[i].Endpoint != r.Readings[i].Endpoint ||
		old.Readings[i].Metrics == nil {
		return nil
	}
	return &old.Readings[i]
}

func hexadecimal(id uint64) string { return fmt.Sprintf("%x", id) }
