package fsm

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lease"
	"vigil/internal/state/lineage"
	"vigil/internal/store/history"
)

// Contents is everything that a store holds besides the key space.
type Contents struct {
	Members *cluster.State
	Conf    *raftpb.ConfState
	Alarms  []kv.Alarm    // sorted
	Leases  []lease.Lease // in the order of the meta records
	Auth    *auth.State
	// Lineage has the claims of terms. Records leaves them out: a store that is built from a state
	// begins another history.
	Lineage *lineage.State
}

// ReadContents returns the contents of the meta records of a store, which may be from another
// member: it fails where New would fail.
func ReadContents(meta []history.Meta) (*Contents, error) {
	c := &Contents{Members: &cluster.State{}}
	var claims []lineage.Record
	for _, m := range meta {
		var err error
		switch {
		case m.Bucket == memberBucket:
			err = c.Members.Load(m.Key, m.Value)
		case m.Bucket == raftBucket && string(m.Key) == string(confKey):
			c.Conf, err = cluster.DecodeConfState(m.Value)
		case m.Bucket == alarmBucket:
			var a kv.Alarm
			a, err = parseAlarm(m.Key, m.Value)
			c.Alarms = append(c.Alarms, a)
		case m.Bucket == versionBucket:
			_, err = parseVersions(m.Key, m.Value)
		case m.Bucket == leaseBucket:
			var l lease.Lease
			l, err = lease.ParseRecord(m.Key, m.Value)
			c.Leases = append(c.Leases, l)
		case m.Bucket == lineageBucket:
			claims = append(claims, lineage.Record{Key: m.Key, Value: m.Value, Deleted: m.Deleted})
		}
		if err != nil {
			return nil, fmt.Errorf("fsm: %w: %w", kv.ErrCorrupt, err)
		}
	}
	if c.Conf == nil {
		return nil, fmt.Errorf("fsm: %w: there is no raft configuration", kv.ErrCorrupt)
	}
	slices.SortFunc(c.Alarms, kv.Alarm.Compare)
	var err error
	if c.Lineage, err = lineage.Load(claims); err != nil {
		return nil, fmt.Errorf("fsm: %w: %w", kv.ErrCorrupt, err)
	}
	c.Auth, err = ReadAuth(meta)
	return c, err
}

// ClearedAlarm returns the meta record that clears an alarm.
func ClearedAlarm(a kv.Alarm) history.Meta {
	return alarmRecord(kv.AlarmChange{Alarm: a, Clear: true})
}

// Records returns the meta records of c except the records of Lineage.
func (c *Contents) Records() []history.Meta {
	out := InitialRecords(c.Members, c.Conf)
	for _, a := range c.Alarms {
		out = append(out, alarmRecord(kv.AlarmChange{Alarm: a}))
	}
	for i := range c.Leases {
		k, v := c.Leases[i].Record()
		out = append(out, history.Meta{Bucket: leaseBucket, Key: k, Value: v})
	}
	if c.Auth != nil {
		out = append(out, AuthMeta(c.Auth)...)
	}
	return out
}
