package concurrency

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"vigil/client"
)

// Tx is a transaction of Transact. Only the goroutine of the work may use it.
type Tx struct {
	ctx    context.Context
	c      *client.Client
	rev    int64                       // of all reads, 0 before the first
	read   map[string]*client.KeyValue // nil for a missing key
	writes map[string]client.Op
	values map[string][]byte // of writes; nil for a deletion
}

// Transact runs work on a consistent state of the store, and applies its writes atomically if
// nobody has changed the keys that it read or writes. Otherwise it runs work again, after a pause
// that grows to a second, until the context ends. So transactions are strictly serializable, and
// work must have no effects outside its Tx.
//
// After an error of work nothing is written. After an error that matches [client.ErrUncertain] the
// writes may have been applied.
func Transact(ctx context.Context, c *client.Client,
	work func(tx *Tx) error) (client.Header, error) {
	pause := 5 * time.Millisecond
	for {
		tx := &Tx{ctx: ctx, c: c, read: map[string]*client.KeyValue{},
			writes: map[string]client.Op{}, values: map[string][]byte{}}
		err := work(tx)
		if err == nil {
			h, done, cerr := tx.commit()
			if cerr != nil || done {
				return h, cerr
			}
		} else if !errors.Is(err, client.ErrCompacted) || tx.rev == 0 {
			return client.Header{}, err
		}
		// The keys were changed, or the revision was compacted.
		select {
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
			return client.Header{},
				fmt.Errorf("transaction: others write the same keys: %w", context.Cause(ctx))
		}
		pause = min(2*pause, time.Second)
	}
}

// Get returns the value of a key: the one that this transaction has written, or else that in the
// state of all its reads. found is false if the key does not exist.
func (tx *Tx) Get(key string) (value []byte, found bool, err error) {
	if _, written := tx.writes[key]; written {
		v := tx.values[key]
		return v, v != nil, nil
	}
	kv, err := tx.load(key)
	if kv == nil || err != nil {
		return nil, false, err
	}
	return kv.Value, true, nil
}

// load reads a key at the revision of the transaction, which the first read fixes.
func (tx *Tx) load(key string) (*client.KeyValue, error) {
	if kv, known := tx.read[key]; known {
		return kv, nil
	}
	var opts []client.GetOption
	if tx.rev > 0 {
		opts = append(opts, client.WithRevision(tx.rev))
	}
	r, err := tx.c.Get(tx.ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	if tx.rev == 0 {
		tx.rev = r.Header.Revision
	}
	tx.read[key] = r.KV()
	return r.KV(), nil
}

// Put writes a key when the transaction is applied.
func (tx *Tx) Put(key string, value []byte, opts ...client.PutOption) {
	value = append([]byte{}, value...)
	tx.writes[key], tx.values[key] = client.OpPut(key, value, opts...), value
}

// Delete deletes a key when the transaction is applied.
func (tx *Tx) Delete(key string) {
	tx.writes[key], tx.values[key] = client.OpDelete(key), nil
}

// commit applies the writes if the keys that were read have not changed.
func (tx *Tx) commit() (h client.Header, done bool, err error) {
	var conditions []client.Cmp
	for _, key := range slices.Sorted(maps.Keys(tx.read)) {
		var rev int64
		if kv := tx.read[key]; kv != nil {
			rev = kv.ModRevision
		}
		conditions = append(conditions, client.ModRevision(key).Equal(rev))
	}
	var then []client.Op
	for _, key := range slices.Sorted(maps.Keys(tx.writes)) {
		then = append(then, tx.writes[key])
		// A key that was written without being read must not have been written since the others
		// were read.
		if _, known := tx.read[key]; !known && tx.rev > 0 {
			conditions = append(conditions, client.ModRevision(key).Less(tx.rev+1))
		}
	}
	if len(then) == 0 {
		return client.Header{Revision: tx.rev}, true, nil // the state was consistent
	}
	r, err := tx.c.Txn(tx.ctx).If(conditions...).Then(then...).Commit()
	if err != nil {
		return client.Header{}, false, err
	}
	return r.Header, r.Succeeded, nil
}
