package api

import "vigil/client/pbfield"

// Header is a ResponseHeader.
type Header struct {
	ClusterID, MemberID uint64
	Revision            int64
	Term                uint64
}

// readFrom reads the header if it is the current field of an answer: all of them have it as field
// 1.
func (h *Header) readFrom(r *pbfield.Reader) {
	var body []byte
	if !r.Message(1, &body) {
		return
	}
	m := pbfield.Read(body)
	for m.Next() {
		pbfield.Int(&m, 1, &h.ClusterID)
		pbfield.Int(&m, 2, &h.MemberID)
		pbfield.Int(&m, 3, &h.Revision)
		pbfield.Int(&m, 4, &h.Term)
	}
	r.Check(m.Err())
}

// ReadHeader reads the header of any answer.
func ReadHeader(b []byte) (h Header, err error) {
	r := pbfield.Read(b)
	for r.Next() {
		h.readFrom(&r)
	}
	return h, r.Err()
}

// KeyValue is a key with its record.
type KeyValue struct {
	Key, Value                  []byte
	Create, Mod, Version, Lease int64
}

func (kv *KeyValue) read(b []byte) error {
	*kv = KeyValue{}
	r := pbfield.Read(b)
	for r.Next() {
		r.Bytes(1, &kv.Key)
		pbfield.Int(&r, 2, &kv.Create)
		pbfield.Int(&r, 3, &kv.Mod)
		pbfield.Int(&r, 4, &kv.Version)
		r.Bytes(5, &kv.Value)
		pbfield.Int(&r, 6, &kv.Lease)
	}
	return r.Err()
}

// RangeAnswer is a RangeResponse without its keys.
type RangeAnswer struct {
	Header Header
	Keys   int // how many keys the answer has
	More   bool
	Count  int64
}

// Read reads a RangeResponse and calls each, which may be nil, with every key.
func (a *RangeAnswer) Read(b []byte, each func(kv *KeyValue) error) error {
	*a = RangeAnswer{}
	var kv KeyValue
	var body []byte
	r := pbfield.Read(b)
	for r.Next() {
		a.Header.readFrom(&r)
		for r.Message(2, &body) {
			if a.Keys++; each == nil {
				continue
			}
			if r.Check(kv.read(body)); r.Err() == nil {
				r.Check(each(&kv))
			}
		}
		r.Bool(3, &a.More)
		pbfield.Int(&r, 4, &a.Count)
	}
	return r.Err()
}

// TxnAnswer is a TxnResponse that only counts the responses of its operations.
type TxnAnswer struct {
	Header    Header
	Succeeded bool
	Responses int
}

// Read reads a TxnResponse.
func (a *TxnAnswer) Read(b []byte) error {
	*a = TxnAnswer{}
	var body []byte
	r := pbfield.Read(b)
	for r.Next() {
		a.Header.readFrom(&r)
		r.Bool(2, &a.Succeeded)
		for r.Message(3, &body) {
			a.Responses++
		}
	}
	return r.Err()
}

// StatusAnswer is a part of Maintenance.Status.
type StatusAnswer struct {
	Header              Header
	Version             string
	DBSize, DBSizeInUse int64
	Leader              uint64
}

// Read reads a StatusResponse.
func (a *StatusAnswer) Read(b []byte) error {
	*a = StatusAnswer{}
	var version []byte
	r := pbfield.Read(b)
	for r.Next() {
		a.Header.readFrom(&r)
		r.Bytes(2, &version)
		pbfield.Int(&r, 3, &a.DBSize)
		pbfield.Int(&r, 4, &a.Leader)
		pbfield.Int(&r, 9, &a.DBSizeInUse)
	}
	a.Version = string(version)
	return r.Err()
}

// Event is one event of a watch.
type Event struct {
	Delete bool
	KV     KeyValue
	Prev   int // bytes of prev_kv, 0 if there is none
}

func (e *Event) read(b []byte) error {
	*e = Event{}
	var body []byte
	r := pbfield.Read(b)
	for r.Next() {
		r.Bool(1, &e.Delete) // DELETE is 1
		if r.Message(2, &body) {
			r.Check(e.KV.read(body))
		}
		if r.Message(3, &body) {
			e.Prev = len(body)
		}
	}
	return r.Err()
}

// WatchAnswer is a WatchResponse without its events.
type WatchAnswer struct {
	Revision, WatchID, CompactRevision int64
	Created, Canceled, Fragment        bool
	Reason                             string
	Events                             int
}

// Read reads a WatchResponse. When it has everything else, it calls each, which may be nil, with
// the events.
func (a *WatchAnswer) Read(b []byte, each func(ev *Event) error) error {
	*a = WatchAnswer{}
	var h Header
	var body, reason []byte
	r := pbfield.Read(b)
	for r.Next() {
		h.readFrom(&r)
		pbfield.Int(&r, 2, &a.WatchID)
		r.Bool(3, &a.Created)
		r.Bool(4, &a.Canceled)
		pbfield.Int(&r, 5, &a.CompactRevision)
		r.Bytes(6, &reason)
		r.Bool(7, &a.Fragment)
		for r.Message(11, &body) {
			a.Events++
		}
	}
	a.Revision, a.Reason = h.Revision, string(reason)
	if r.Err() != nil || each == nil || a.Events == 0 {
		return r.Err()
	}
	var ev Event
	r = pbfield.Read(b)
	for r.Next() {
		for r.Message(11, &body) {
			if r.Check(ev.read(body)); r.Err() == nil {
				r.Check(each(&ev))
			}
		}
	}
	return r.Err()
}

// LeaseAnswer is a LeaseGrantResponse or a LeaseKeepAliveResponse.
type LeaseAnswer struct {
	Header  Header
	ID, TTL int64
	Error   string
}

// Read reads either response.
func (a *LeaseAnswer) Read(b []byte) error {
	*a = LeaseAnswer{}
	var text []byte
	r := pbfield.Read(b)
	for r.Next() {
		a.Header.readFrom(&r)
		pbfield.Int(&r, 2, &a.ID)
		pbfield.Int(&r, 3, &a.TTL)
		r.Bytes(4, &text)
	}
	a.Error = string(text)
	return r.Err()
}
