package client

import (
	"context"

	"vigil/client/internal/namespace"
	"vigil/client/internal/request"
)

// Cmp is a condition of a transaction.
type Cmp struct{ c request.Compare }

// Number is a number of a key in a condition. It is 0 for a missing key.
type Number struct{ c Cmp }

// Bytes is the value of a key in a condition. No condition holds for a missing key.
type Bytes struct{ c Cmp }

func numberOf(target uint8, key string, opts []CmpOption) Number {
	n := Number{Cmp{request.Compare{Key: key, Target: target}}}
	for _, o := range opts {
		o.applyCmp(&n.c)
	}
	return n
}

// Version is the number of changes of a key since its creation. With a [RangeOption] the condition
// must hold for every existing key of the range; the same holds for the functions below.
func Version(key string, opts ...CmpOption) Number {
	return numberOf(request.CompareVersion, key, opts)
}

// CreateRevision is the revision at which a key was created.
func CreateRevision(key string, opts ...CmpOption) Number {
	return numberOf(request.CompareCreate, key, opts)
}

// ModRevision is the revision of the last change of a key.
func ModRevision(key string, opts ...CmpOption) Number {
	return numberOf(request.CompareMod, key, opts)
}

// Lease is the lease of a key.
func Lease(key string, opts ...CmpOption) Number {
	return numberOf(request.CompareLease, key, opts)
}

// Value is the value of a key.
func Value(key string, opts ...CmpOption) Bytes {
	return Bytes{numberOf(request.CompareValue, key, opts).c}
}

func (n Number) compare(r uint8, v int64) Cmp {
	n.c.c.Result, n.c.c.Number = r, v
	return n.c
}

// Equal holds if the number is v.
func (n Number) Equal(v int64) Cmp { return n.compare(request.Equal, v) }

// NotEqual holds if the number is not v.
func (n Number) NotEqual(v int64) Cmp { return n.compare(request.NotEqual, v) }

// Greater holds if the number is above v.
func (n Number) Greater(v int64) Cmp { return n.compare(request.Greater, v) }

// Less holds if the number is below v.
func (n Number) Less(v int64) Cmp { return n.compare(request.Less, v) }

func (n Bytes) compare(r uint8, v []byte) Cmp {
	n.c.c.Result, n.c.c.Value = r, v
	return n.c
}

// Equal holds if the value is v.
func (n Bytes) Equal(v []byte) Cmp { return n.compare(request.Equal, v) }

// NotEqual holds if the value is not v.
func (n Bytes) NotEqual(v []byte) Cmp { return n.compare(request.NotEqual, v) }

// Greater holds if the value is after v in the order of bytes.
func (n Bytes) Greater(v []byte) Cmp { return n.compare(request.Greater, v) }

// Less holds if the value is before v in the order of bytes.
func (n Bytes) Less(v []byte) Cmp { return n.compare(request.Less, v) }

// Exists holds if the key exists.
func Exists(key string) Cmp { return Version(key).Greater(0) }

// Missing holds if the key does not exist.
func Missing(key string) Cmp { return Version(key).Equal(0) }

// Op is an operation of a transaction.
type Op struct{ op request.Op }

// OpGet reads in a transaction; see [Client.Get].
func OpGet(key string, opts ...GetOption) Op { return Op{request.Op{Get: getRequest(key, opts)}} }

// OpPut writes in a transaction; see [Client.Put].
func OpPut(key string, value []byte, opts ...PutOption) Op {
	r := &request.Put{Key: key, Value: value}
	for _, o := range opts {
		o.applyPut(r)
	}
	return Op{request.Op{Put: r}}
}

// OpDelete deletes in a transaction; see [Client.Delete].
func OpDelete(key string, opts ...DeleteOption) Op {
	r := &request.Delete{Key: key}
	for _, o := range opts {
		o.applyDelete(r)
	}
	return Op{request.Op{Delete: r}}
}

// OpTxn is a transaction in a transaction. Its conditions refer to the state before the outer
// transaction.
func OpTxn(conditions []Cmp, then, otherwise []Op) Op {
	t := &request.Txn{}
	addConditions(&t.Compare, conditions)
	addOps(&t.Success, then)
	addOps(&t.Failure, otherwise)
	return Op{request.Op{Txn: t}}
}

// Txn is a transaction being built: c.Txn(ctx).If(...).Then(...).Else(...).Commit(). It is not safe
// for concurrent use.
type Txn struct {
	c   *Client
	ctx context.Context
	r   request.Txn // without the namespace
}

func addConditions(list *[]request.Compare, conditions []Cmp) {
	for _, c := range conditions {
		*list = append(*list, c.c)
	}
}

func addOps(list *[]request.Op, ops []Op) {
	for _, o := range ops {
		*list = append(*list, o.op)
	}
}

// Txn starts to build a transaction.
func (c *Client) Txn(ctx context.Context) *Txn { return &Txn{c: c, ctx: ctx} }

// If adds conditions. The Then branch is taken if all of them hold, or if there are none.
func (t *Txn) If(conditions ...Cmp) *Txn {
	addConditions(&t.r.Compare, conditions)
	return t
}

// Then adds operations that are executed if all conditions hold.
func (t *Txn) Then(ops ...Op) *Txn {
	addOps(&t.r.Success, ops)
	return t
}

// Else adds operations that are executed otherwise.
func (t *Txn) Else(ops ...Op) *Txn {
	addOps(&t.r.Failure, ops)
	return t
}

// Commit executes the transaction. After an error that matches [ErrUncertain] it may have been
// applied. A read-only transaction is retried instead.
func (t *Txn) Commit() (*TxnResponse, error) {
	c := t.c
	r := c.ns.PlaceTxn(&t.r)
	m := &txnMethod
	if r.ReadOnly() {
		m = &readTxnMethod
	}
	if c.ns.Prefix != "" && namespace.HasEmptyKey(&t.r) {
		return nil, emptyKey(m)
	}
	resp, err := call[TxnResponse](t.ctx, c, m, "", r)
	if err != nil {
		return nil, err
	}
	c.ns.stripTxn(resp)
	return resp, nil
}
