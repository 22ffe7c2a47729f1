package client

import (
	"strings"

	"vigil/client/internal/wire"
)

// namespace is the prefix that a client puts before the keys of its requests and removes from the keys of answers.
type namespace string

// place puts the namespace before a key and the end of its range.
func (ns namespace) place(key, end *string) {
	if ns == "" {
		if *key == "" && *end != "" {
			*key = smallest
		}
		return
	}
	*key = string(ns) + *key
	switch *end {
	case "":
	case toTheEnd:
		*end = PrefixEnd(string(ns))
	default:
		*end = string(ns) + *end
	}
}

// placeTxn returns the request for a transaction, with the namespace before all keys. Operations may be used again, so t
// does not change.
func (ns namespace) placeTxn(t *txn) *wire.TxnRequest {
	out := &wire.TxnRequest{Compare: make([]wire.Compare, len(t.compare)), Success: ns.placeOps(t.success), Failure: ns.placeOps(t.fail)}
	for i, cmp := range t.compare {
		ns.place(&cmp.c.Key, &cmp.c.End)
		out.Compare[i] = cmp.c
	}
	return out
}

func (ns namespace) placeOps(list []Op) []wire.Op {
	out := make([]wire.Op, len(list))
	for i, op := range list {
		switch {
		case op.get != nil:
			get := *op.get
			ns.place(&get.Key, &get.End)
			out[i].Get = &get
		case op.put != nil:
			put := op.put
			if ns != "" {
				copied := *put
				copied.Key = string(ns) + put.Key
				put = &copied
			}
			out[i].Put = put
		case op.delete != nil:
			del := *op.delete
			ns.place(&del.Key, &del.End)
			out[i].Delete = &del
		case op.txn != nil:
			out[i].Txn = ns.placeTxn(op.txn)
		}
	}
	return out
}

// strip removes the namespace from the keys of an answer, which all have it.
func (ns namespace) strip(kvs []KeyValue) {
	if ns != "" {
		for i := range kvs {
			ns.stripOne(&kvs[i])
		}
	}
}

func (ns namespace) stripOne(kv *KeyValue) {
	if kv != nil {
		kv.Key = kv.Key[min(len(ns), len(kv.Key)):]
	}
}

// stripIfThere removes the namespace from a key that need not have it.
func (ns namespace) stripIfThere(key []byte) string {
	return strings.TrimPrefix(string(key), string(ns))
}

func (ns namespace) stripTxn(r *TxnResponse) {
	if ns == "" {
		return
	}
	for _, op := range r.Responses {
		switch {
		case op.Get != nil:
			ns.strip(op.Get.KVs)
		case op.Put != nil:
			ns.stripOne(op.Put.PrevKV)
		case op.Delete != nil:
			ns.strip(op.Delete.PrevKVs)
		case op.Txn != nil:
			ns.stripTxn(op.Txn)
		}
	}
}
