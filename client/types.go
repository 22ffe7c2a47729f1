package client

import (
	"bytes"
	"strings"
)

// KeyValue is a key with its value and metadata.
//
// Key and Value share memory with the message that contained them, so keeping one of them keeps the
// message in memory; Clone makes an independent copy. Value may be changed without effect on other
// values.
type KeyValue struct {
	Key   string
	Value []byte
	// CreateRevision is the revision of the key's creation, ModRevision the revision of its last
	// change.
	CreateRevision, ModRevision int64
	// Version counts the changes since the creation, which is 1.
	Version int64
	// Lease is the lease the key is attached to, 0 if none.
	Lease LeaseID
}

// Clone returns a copy that shares no memory with kv.
func (kv KeyValue) Clone() KeyValue {
	kv.Key = strings.Clone(kv.Key)
	kv.Value = bytes.Clone(kv.Value)
	return kv
}

// Header is part of every answer.
type Header struct {
	// ClusterID and MemberID identify the member that answered.
	ClusterID, MemberID uint64
	// Revision is the revision of the store when the request was answered, and for a write its own.
	Revision int64
	// RaftTerm is the term in which it was answered.
	RaftTerm uint64
}

// EventType is the kind of a change.
type EventType uint8

// The types of an Event.
const (
	Put EventType = iota
	Delete
)

// String returns PUT or DELETE, as the API writes them.
func (t EventType) String() string {
	if t == Delete {
		return "DELETE"
	}
	return "PUT"
}

// Event is a change of one key.
type Event struct {
	Type EventType
	// KV is the key after the change. For a deletion it has only Key and ModRevision, which is the
	// revision of the deletion.
	KV KeyValue
	// PrevKV is the key before the change: with [WithPrevKV], if the key existed and its last value
	// has not been compacted.
	PrevKV *KeyValue
}

// IsCreate reports whether the key did not exist before.
func (ev *Event) IsCreate() bool {
	return ev.Type == Put && ev.KV.CreateRevision == ev.KV.ModRevision
}

// IsModify reports whether the key existed before and still exists.
func (ev *Event) IsModify() bool {
	return ev.Type == Put && ev.KV.CreateRevision != ev.KV.ModRevision
}

// GetResponse is the answer of [Client.Get].
type GetResponse struct {
	Header Header
	// KVs are the keys found, in ascending order by default.
	KVs []KeyValue
	// More reports that a limit left keys out.
	More bool
	// Count is the number of keys in the range, whatever the limit.
	Count int64
}

// KV returns the first key found, or nil. It suits a Get of a single key.
func (m *GetResponse) KV() *KeyValue {
	if len(m.KVs) == 0 {
		return nil
	}
	return &m.KVs[0]
}

// PutResponse is the answer of [Client.Put].
type PutResponse struct {
	// [Header.Revision] is the revision of the put.
	Header Header
	// PrevKV is the key before, with [WithPrevKV], nil if it did not exist.
	PrevKV *KeyValue
}

// DeleteResponse is the answer of [Client.Delete].
type DeleteResponse struct {
	// [Header.Revision] is the revision of the deletion, or the current one if nothing was deleted.
	Header Header
	// Deleted is the number of keys deleted.
	Deleted int64
	// PrevKVs are the deleted keys, with [WithPrevKV].
	PrevKVs []KeyValue
}

// TxnResponse is the answer of [Txn.Commit].
type TxnResponse struct {
	// [Header.Revision] is the revision of the transaction, or the current one if it changed
	// nothing.
	Header Header
	// Succeeded reports that all conditions held, so the Then branch was taken.
	Succeeded bool
	// Responses are the answers to the operations of the branch taken, in order.
	Responses []OpResponse
}

// OpResponse is the answer of one operation of a transaction; one field is set.
type OpResponse struct {
	Get    *GetResponse
	Put    *PutResponse
	Delete *DeleteResponse
	Txn    *TxnResponse
}
