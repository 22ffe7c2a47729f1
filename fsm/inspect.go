package fsm

import (
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/cluster"
	"vigil/history"
	"vigil/kv"
	"vigil/lease"
)

// Read returns the membership and raft's configuration that the meta records of a store tell, which
// may come from elsewhere: it fails where New would.
func Read(meta []history.Meta) (*cluster.State, *raftpb.ConfState, error) {
	members := &cluster.State{}
	var conf *raftpb.ConfState
	for _, m := range meta {
		var err error
		switch {
		case m.Bucket == memberBucket:
			err = members.Load(m.Key, m.Value)
		case m.Bucket == raftBucket && string(m.Key) == string(confKey):
			conf, err = cluster.DecodeConfState(m.Value)
		case m.Bucket == alarmBucket:
			_, err = parseAlarm(m.Key, m.Value)
		case m.Bucket == leaseBucket:
			_, err = lease.ParseRecord(m.Key, m.Value)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("fsm: %w: %w", kv.ErrCorrupt, err)
		}
	}
	if conf == nil {
		return nil, nil, fmt.Errorf("fsm: %w: there is no raft configuration", kv.ErrCorrupt)
	}
	if _, err := ReadAuth(meta); err != nil {
		return nil, nil, err
	}
	return members, conf, nil
}
