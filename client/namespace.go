package client

import (
	"strings"

	"vigil/client/internal/namespace"
)

// keyspace is the prefix that a client puts before the keys of its requests and removes from the
// keys of answers.
type keyspace struct{ namespace.Prefix }

// strip removes the namespace from the keys of an answer, which all have it.
func (ns keyspace) strip(kvs []KeyValue) {
	if ns.Prefix != "" {
		for i := range kvs {
			ns.stripOne(&kvs[i])
		}
	}
}

func (ns keyspace) stripOne(kv *KeyValue) {
	if kv != nil {
		kv.Key = kv.Key[min(len(ns.Prefix), len(kv.Key)):]
	}
}

// stripIfThere removes the namespace from a key that need not have it.
func (ns keyspace) stripIfThere(key []byte) string {
	return strings.TrimPrefix(string(key), string(ns.Prefix))
}

func (ns keyspace) stripTxn(r *TxnResponse) {
	if ns.Prefix == "" {
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
