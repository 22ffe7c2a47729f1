package client

import "strings"

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

// txn returns a copy of a transaction with the namespace before all keys. Operations may be used again, so r does not
// change.
func (ns namespace) txn(r *txnRequest) *txnRequest {
	out := &txnRequest{compare: make([]Cmp, len(r.compare)), success: ns.ops(r.success), fail: ns.ops(r.fail)}
	for i, cmp := range r.compare {
		ns.place(&cmp.key, &cmp.end)
		out.compare[i] = cmp
	}
	return out
}

func (ns namespace) ops(list []Op) []Op {
	out := make([]Op, len(list))
	for i, op := range list {
		switch {
		case op.get != nil:
			get := *op.get
			ns.place(&get.key, &get.end)
			op.get = &get
		case op.put != nil && ns != "":
			put := *op.put
			put.key = string(ns) + put.key
			op.put = &put
		case op.delete != nil:
			del := *op.delete
			ns.place(&del.key, &del.end)
			op.delete = &del
		case op.txn != nil:
			op.txn = ns.txn(op.txn)
		}
		out[i] = op
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
func (ns namespace) stripIfThere(key []byte) string { return strings.TrimPrefix(string(key), string(ns)) }

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
