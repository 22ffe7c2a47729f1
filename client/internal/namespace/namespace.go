// Package namespace puts a prefix before the keys of requests.
package namespace

import "vigil/client/internal/request"

// The end of a range from a key on, and the smallest key.
const (
	ToTheEnd = "\x00"
	smallest = "\x00"
)

// Prefix is put before keys.
type Prefix string

// PrefixEnd returns the end of the range of all keys that begin with prefix.
func PrefixEnd(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if c := prefix[i]; c < 0xff {
			return prefix[:i] + string([]byte{c + 1})
		}
	}
	return ToTheEnd
}

// Place puts the prefix before a key and the end of its range.
func (p Prefix) Place(key, end *string) {
	if p == "" {
		if *key == "" && *end != "" {
			*key = smallest
		}
		return
	}
	*key = string(p) + *key
	switch *end {
	case "":
	case ToTheEnd:
		*end = PrefixEnd(string(p))
	default:
		*end = string(p) + *end
	}
}

// PlaceTxn returns a copy of a transaction with the prefix before all keys. Operations may be used
// again, so t does not change.
func (p Prefix) PlaceTxn(t *request.Txn) *request.Txn {
	out := &request.Txn{Compare: make([]request.Compare, len(t.Compare)),
		Success: p.placeOps(t.Success), Failure: p.placeOps(t.Failure)}
	for i, c := range t.Compare {
		p.Place(&c.Key, &c.End)
		out.Compare[i] = c
	}
	return out
}

// HasEmptyKey reports whether a transaction has an empty key, of which Place would make a valid
// one.
func HasEmptyKey(t *request.Txn) bool {
	empty := func(key, end string) bool { return key == "" && end == "" }
	for _, c := range t.Compare {
		if empty(c.Key, c.End) {
			return true
		}
	}
	for _, list := range [][]request.Op{t.Success, t.Failure} {
		for _, op := range list {
			if op.Get != nil && empty(op.Get.Key, op.Get.End) ||
				op.Put != nil && op.Put.Key == "" ||
				op.Delete != nil && empty(op.Delete.Key, op.Delete.End) ||
				op.Txn != nil && HasEmptyKey(op.Txn) {
				return true
			}
		}
	}
	return false
}

func (p Prefix) placeOps(list []request.Op) []request.Op {
	out := make([]request.Op, len(list))
	for i, op := range list {
		switch {
		case op.Get != nil:
			get := *op.Get
			p.Place(&get.Key, &get.End)
			out[i].Get = &get
		case op.Put != nil:
			put := op.Put
			if p != "" {
				copied := *put
				copied.Key = string(p) + put.Key
				put = &copied
			}
			out[i].Put = put
		case op.Delete != nil:
			del := *op.Delete
			p.Place(&del.Key, &del.End)
			out[i].Delete = &del
		case op.Txn != nil:
			out[i].Txn = p.PlaceTxn(op.Txn)
		}
	}
	return out
}
