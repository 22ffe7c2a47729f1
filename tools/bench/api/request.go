// Package api encodes the requests and reads the answers of etcd's API as far as a load generator
// must. Requests are appended to a buffer that the caller reuses. Answers are read in place: a
// slice in an answer is a part of the message and is valid as long as the message.
package api

import "vigil/client/pbfield"

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

// RangeRequest is a range; fields at their zero value are not sent.
type RangeRequest struct {
	Key, End               []byte
	Limit, Revision        int64
	Serializable, KeysOnly bool
	CountOnly              bool
}

// Append adds the encoded request to b.
func (r *RangeRequest) Append(b []byte) []byte {
	b = pbfield.AppendBytes(b, 1, r.Key)
	b = pbfield.AppendBytes(b, 2, r.End)
	b = pbfield.AppendInt(b, 3, r.Limit)
	b = pbfield.AppendInt(b, 4, r.Revision)
	b = pbfield.AppendBool(b, 7, r.Serializable)
	b = pbfield.AppendBool(b, 8, r.KeysOnly)
	return pbfield.AppendBool(b, 9, r.CountOnly)
}

// AppendPut adds an encoded PutRequest to b.
func AppendPut(b, key, value []byte) []byte {
	b = pbfield.AppendBytes(b, 1, key)
	return pbfield.AppendBytes(b, 2, value)
}

// AppendDelete adds an encoded DeleteRangeRequest to b.
func AppendDelete(b, key, end []byte) []byte {
	b = pbfield.AppendBytes(b, 1, key)
	return pbfield.AppendBytes(b, 2, end)
}

// AppendUpdateTxn adds the transaction that a Kubernetes API server makes of an update: if the
// mod_revision of the key is still rev, put the value, else read the key. With rev 0 it is a
// create.
func AppendUpdateTxn(b, key, value []byte, rev int64) []byte {
	b, compare := pbfield.BeginMessage(b, 1)
	b = pbfield.AppendInt(b, 2, int32(2)) // target MOD, result EQUAL is 0
	b = pbfield.AppendPresent(b, 3, key)
	b = pbfield.AppendPresentInt(b, 6, rev) // a member of a oneof
	b = pbfield.EndMessage(b, compare)
	b = AppendTxnPut(b, key, value)
	b, failure := pbfield.BeginMessage(b, 3)
	b, get := pbfield.BeginMessage(b, 1)
	b = pbfield.AppendBytes(b, 1, key)
	b = pbfield.EndMessage(b, get)
	return pbfield.EndMessage(b, failure)
}

// AppendTxnPut adds one more put to a transaction without compares.
func AppendTxnPut(b, key, value []byte) []byte {
	b, op := pbfield.BeginMessage(b, 2)
	b, put := pbfield.BeginMessage(b, 2)
	b = AppendPut(b, key, value)
	b = pbfield.EndMessage(b, put)
	return pbfield.EndMessage(b, op)
}

// AppendCompact adds an encoded CompactionRequest to b.
func AppendCompact(b []byte, rev int64, physical bool) []byte {
	return pbfield.AppendBool(pbfield.AppendInt(b, 1, rev), 2, physical)
}

// WatchCreate asks for a watcher.
type WatchCreate struct {
	Key, End                         []byte
	StartRevision, WatchID           int64
	ProgressNotify, PrevKV, Fragment bool
}

// Append adds the encoded WatchRequest to b.
func (w *WatchCreate) Append(b []byte) []byte {
	b, create := pbfield.BeginMessage(b, 1)
	b = pbfield.AppendBytes(b, 1, w.Key)
	b = pbfield.AppendBytes(b, 2, w.End)
	b = pbfield.AppendInt(b, 3, w.StartRevision)
	b = pbfield.AppendBool(b, 4, w.ProgressNotify)
	b = pbfield.AppendBool(b, 6, w.PrevKV)
	b = pbfield.AppendInt(b, 7, w.WatchID)
	b = pbfield.AppendBool(b, 8, w.Fragment)
	return pbfield.EndMessage(b, create)
}

// AppendWatchCancel adds the WatchRequest that cancels a watcher to b.
func AppendWatchCancel(b []byte, id int64) []byte {
	b, cancel := pbfield.BeginMessage(b, 2)
	return pbfield.EndMessage(pbfield.AppendInt(b, 1, id), cancel)
}

// AppendWatchProgress adds the WatchRequest that asks for progress to b.
func AppendWatchProgress(b []byte) []byte { return pbfield.AppendPresent(b, 3, nil) }

// AppendMemberAdd appends a MemberAddRequest.
func AppendMemberAdd(b []byte, peerURL string) []byte { return pbfield.AppendBytes(b, 1, peerURL) }

// AppendMemberRemove appends a MemberRemoveRequest.
func AppendMemberRemove(b []byte, id uint64) []byte { return pbfield.AppendInt(b, 1, id) }

// AppendLeaseGrant appends a LeaseGrantRequest; the server chooses the id.
func AppendLeaseGrant(b []byte, ttl int64) []byte { return pbfield.AppendInt(b, 1, ttl) }

// AppendLeaseKeepAlive appends a LeaseKeepAliveRequest.
func AppendLeaseKeepAlive(b []byte, id int64) []byte { return pbfield.AppendInt(b, 1, id) }
