// Package wire encodes the requests and reads the answers of the etcd v3 API as far as a load
// generator must: requests are appended to a buffer that the caller reuses, answers are walked in
// place and values are never copied.
//
// A slice that an answer points to is a part of the message it was read from and lives as long.
package wire

import "encoding/binary"

// The full names of the methods that are called.
const (
	Range       = "/etcdserverpb.KV/Range"
	Put         = "/etcdserverpb.KV/Put"
	DeleteRange = "/etcdserverpb.KV/DeleteRange"
	Txn         = "/etcdserverpb.KV/Txn"
	Compact     = "/etcdserverpb.KV/Compact"
	Watch       = "/etcdserverpb.Watch/Watch"
	Status      = "/etcdserverpb.Maintenance/Status"
	Defragment  = "/etcdserverpb.Maintenance/Defragment"

	LeaseGrant     = "/etcdserverpb.Lease/LeaseGrant"
	LeaseKeepAlive = "/etcdserverpb.Lease/LeaseKeepAlive"

	MemberAdd    = "/etcdserverpb.Cluster/MemberAdd"
	MemberRemove = "/etcdserverpb.Cluster/MemberRemove"
)

func varint(b []byte, field int, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = binary.AppendUvarint(b, uint64(field)<<3)
	return binary.AppendUvarint(b, v)
}

func flag(b []byte, field int, v bool) []byte {
	if !v {
		return b
	}
	return varint(b, field, 1)
}

func bytesField(b []byte, field int, v []byte) []byte {
	if len(v) == 0 {
		return b
	}
	return present(b, field, v)
}

// present writes a field even if it is empty, as a message in a oneof needs.
func present(b []byte, field int, v []byte) []byte {
	b = binary.AppendUvarint(b, uint64(field)<<3|2)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// nested writes the message that put appends as a field. The length is written once it is known,
// so the body moves by the size of its length.
func nested(b []byte, field int, put func(b []byte) []byte) []byte {
	b = binary.AppendUvarint(b, uint64(field)<<3|2)
	at := len(b)
	b = put(b)
	n := len(b) - at
	var size [binary.MaxVarintLen64]byte
	k := binary.PutUvarint(size[:], uint64(n))
	b = append(b, size[:k]...)
	copy(b[at+k:], b[at:at+n])
	copy(b[at:], size[:k])
	return b
}

// RangeRequest is a range; fields at their zero value are not sent.
type RangeRequest struct {
	Key, End               []byte
	Limit, Revision        int64
	Serializable, KeysOnly bool
	CountOnly              bool
}

// Append adds the encoded request to b.
func (r *RangeRequest) Append(b []byte) []byte {
	b = bytesField(b, 1, r.Key)
	b = bytesField(b, 2, r.End)
	b = varint(b, 3, uint64(r.Limit))
	b = varint(b, 4, uint64(r.Revision))
	b = flag(b, 7, r.Serializable)
	b = flag(b, 8, r.KeysOnly)
	return flag(b, 9, r.CountOnly)
}

// AppendPut adds an encoded PutRequest to b.
func AppendPut(b, key, value []byte) []byte {
	b = bytesField(b, 1, key)
	return bytesField(b, 2, value)
}

// AppendDelete adds an encoded DeleteRangeRequest to b.
func AppendDelete(b, key, end []byte) []byte {
	b = bytesField(b, 1, key)
	return bytesField(b, 2, end)
}

// AppendUpdateTxn adds the transaction that a Kubernetes API server makes of an update: if the key's
// mod_revision is still rev, put the value, else read the key. With rev 0 it is its create.
func AppendUpdateTxn(b, key, value []byte, rev int64) []byte {
	b = nested(b, 1, func(b []byte) []byte {
		b = varint(b, 2, 2) // target MOD, result EQUAL is 0
		b = present(b, 3, key)
		// The revision is in a oneof, so it is sent even when it is 0.
		b = binary.AppendUvarint(b, 6<<3)
		return binary.AppendUvarint(b, uint64(rev))
	})
	b = nested(b, 2, func(b []byte) []byte {
		return nested(b, 2, func(b []byte) []byte { return AppendPut(b, key, value) })
	})
	return nested(b, 3, func(b []byte) []byte {
		return nested(b, 1, func(b []byte) []byte { return bytesField(b, 1, key) })
	})
}

// AppendTxnPut adds one more put to a transaction without compares.
func AppendTxnPut(b, key, value []byte) []byte {
	return nested(b, 2, func(b []byte) []byte {
		return nested(b, 2, func(b []byte) []byte { return AppendPut(b, key, value) })
	})
}

// AppendCompact adds an encoded CompactionRequest to b.
func AppendCompact(b []byte, rev int64, physical bool) []byte {
	return flag(varint(b, 1, uint64(rev)), 2, physical)
}

// WatchCreate asks for a watcher.
type WatchCreate struct {
	Key, End                         []byte
	StartRevision, WatchID           int64
	ProgressNotify, PrevKV, Fragment bool
}

// Append adds the encoded WatchRequest to b.
func (w *WatchCreate) Append(b []byte) []byte {
	return nested(b, 1, func(b []byte) []byte {
		b = bytesField(b, 1, w.Key)
		b = bytesField(b, 2, w.End)
		b = varint(b, 3, uint64(w.StartRevision))
		b = flag(b, 4, w.ProgressNotify)
		b = flag(b, 6, w.PrevKV)
		b = varint(b, 7, uint64(w.WatchID))
		return flag(b, 8, w.Fragment)
	})
}

// AppendWatchCancel adds the WatchRequest that cancels a watcher to b.
func AppendWatchCancel(b []byte, id int64) []byte {
	return nested(b, 2, func(b []byte) []byte { return varint(b, 1, uint64(id)) })
}

// AppendWatchProgress adds the WatchRequest that asks for progress to b.
func AppendWatchProgress(b []byte) []byte { return present(b, 3, nil) }

// AppendMemberAdd appends a MemberAddRequest.
func AppendMemberAdd(b []byte, peerURL string) []byte { return bytesField(b, 1, []byte(peerURL)) }

// AppendMemberRemove appends a MemberRemoveRequest.
func AppendMemberRemove(b []byte, id uint64) []byte { return varint(b, 1, id) }

// AppendLeaseGrant appends a LeaseGrantRequest; the server chooses the id.
func AppendLeaseGrant(b []byte, ttl int64) []byte { return varint(b, 1, uint64(ttl)) }

// AppendLeaseKeepAlive appends a LeaseKeepAliveRequest.
func AppendLeaseKeepAlive(b []byte, id int64) []byte { return varint(b, 1, uint64(id)) }
