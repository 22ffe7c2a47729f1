package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lease"
)

// The buckets of etcd.
const (
	bucketKey     = "key"
	bucketMeta    = "meta"
	bucketLease   = "lease"
	bucketAlarm   = "alarm"
	bucketCluster = "cluster"
	bucketMembers = "members"
	bucketRemoved = "members_removed"
	bucketAuth    = "auth"
	bucketUsers   = "authUsers"
	bucketRoles   = "authRoles"
)

// The fixed keys of buckets.
const (
	keyScheduled      = "scheduledCompactRev"
	keyFinished       = "finishedCompactRev"
	keyIndex          = "consistent_index"
	keyTerm           = "term"
	keyConfState      = "confState"
	keyStorageVersion = "storageVersion"
	keyClusterVersion = "clusterVersion"
	keyAuthEnabled    = "authEnabled"
	keyAuthRevision   = "authRevision"
)

// Contents is the content of a store except its records.
type Contents struct {
	// Index and Term are the position in the raft log of the state. Files of etcd 3.4 do not
	// contain the term.
	Index, Term uint64
	// Compact is the compact revision, -1 for none.
	Compact int64
	// StorageVersion and ClusterVersion are versions of etcd, such as "3.7.0"; empty if unknown.
	StorageVersion, ClusterVersion string
	Leases                         []lease.Lease
	Alarms                         []kv.Alarm
	// Auth holds users and roles; nil writes none.
	Auth *auth.State

	// Conf and Members are not read from files: a restored cluster has its own.
	Conf    *raftpb.ConfState
	Members *cluster.State
}

const (
	revisionSize  = 17
	tombstoneMark = 't'
)

// appendRevision appends a revision in the form of etcd's keys.
func appendRevision(b []byte, rev kv.Rev) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(rev.Main))
	return binary.BigEndian.AppendUint64(append(b, '_'), uint64(rev.Sub))
}

// parseRevision reads the key of a record.
func parseRevision(b []byte) (rev kv.Rev, tombstone bool, err error) {
	tombstone = len(b) == revisionSize+1 && b[revisionSize] == tombstoneMark
	if len(b) != revisionSize && !tombstone || b[8] != '_' {
		return rev, false, fmt.Errorf("%x is not a revision", b)
	}
	rev = kv.Rev{Main: int64(binary.BigEndian.Uint64(b)),
		Sub: int64(binary.BigEndian.Uint64(b[9:]))}
	if rev.Main < 0 || rev.Sub < 0 {
		return rev, false, fmt.Errorf("%x is not a revision", b)
	}
	return rev, tombstone, nil
}

var errMessage = errors.New("malformed message")

// leadingKey returns the key of an encoded mvccpb.KeyValue, which is its first field, and where it
// ends.
func leadingKey(b []byte) (key []byte, end int, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 || num != 1 || typ != protowire.BytesType {
		return nil, 0, errMessage
	}
	key, m := protowire.ConsumeBytes(b[n:])
	if m < 0 || len(key) == 0 {
		return nil, 0, errMessage
	}
	return key, n + m, nil
}

// The fields of the message in which etcd stores a lease.
const (
	leaseID = 1 + iota
	leaseTTL
	leaseRemaining
)

func appendLease(b []byte, l *lease.Lease) []byte {
	b = appendInt(b, leaseID, l.ID)
	b = appendInt(b, leaseTTL, l.TTL)
	return appendInt(b, leaseRemaining, l.Remaining)
}

func appendInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), uint64(v))
}

func parseLease(key, value []byte) (lease.Lease, error) {
	var l lease.Lease
	for b := value; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return l, errMessage
		}
		b = b[n:]
		if typ != protowire.VarintType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return l, errMessage
			}
			b = b[n:]
			continue
		}
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return l, errMessage
		}
		b = b[n:]
		switch num {
		case leaseID:
			l.ID = int64(v)
		case leaseTTL:
			l.TTL = int64(v)
		case leaseRemaining:
			l.Remaining = int64(v)
		}
	}
	switch {
	case !bytes.Equal(key, lease.Key(l.ID)) || l.ID == 0:
		return l, fmt.Errorf("it is of the lease %x", l.ID)
	case l.TTL < 0 || l.TTL > kv.MaxLeaseTTL:
		return l, fmt.Errorf("TTL %d s, the limit is %d s", l.TTL, int64(kv.MaxLeaseTTL))
	}
	// etcd checks neither bound of the remaining TTL, and a backup must not be unusable for a
	// lease.
	l.Remaining = min(max(l.Remaining, 0), l.TTL)
	return l, nil
}

func alarmKey(a kv.Alarm) ([]byte, error) {
	return proto.MarshalOptions{Deterministic: true}.Marshal(&etcdserverpb.AlarmMember{
		MemberID: a.MemberID, Alarm: etcdserverpb.AlarmType(a.Type)})
}

func parseAlarm(key []byte) (kv.Alarm, error) {
	var m etcdserverpb.AlarmMember
	if err := proto.Unmarshal(key, &m); err != nil {
		return kv.Alarm{}, err
	}
	return kv.Alarm{Type: kv.AlarmType(m.Alarm), MemberID: m.MemberID}, nil
}

// memberKey returns the key of a member, also of a removed one.
func memberKey(id uint64) string { return strconv.FormatUint(id, 16) }

func memberValue(m *cluster.Member) ([]byte, error) {
	return json.Marshal(struct {
		ID         uint64   `json:"id"`
		PeerURLs   []string `json:"peerURLs"`
		IsLearner  bool     `json:"isLearner,omitempty"`
		Name       string   `json:"name,omitempty"`
		ClientURLs []string `json:"clientURLs,omitempty"`
	}{m.ID, m.PeerURLs, m.Learner, m.Name, m.ClientURLs})
}

func confValue(cs *raftpb.ConfState) ([]byte, error) {
	return json.Marshal(struct {
		Voters         []uint64 `json:"voters,omitempty"`
		Learners       []uint64 `json:"learners,omitempty"`
		VotersOutgoing []uint64 `json:"voters_outgoing,omitempty"`
		LearnersNext   []uint64 `json:"learners_next,omitempty"`
		AutoLeave      bool     `json:"auto_leave"`
	}{cs.GetVoters(), cs.GetLearners(), cs.GetVotersOutgoing(), cs.GetLearnersNext(),
		cs.GetAutoLeave()})
}

func number(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }

func parseNumber(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("%x is not a number of 8 bytes", b)
	}
	return binary.BigEndian.Uint64(b), nil
}
