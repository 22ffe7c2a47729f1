//go:build wasip1

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"

	"vigil/client"
	"vigil/sim/check"
	"vigil/sim/guest/sys"
	"vigil/sim/scenario/setup"
)

const (
	// opTimeout is the timeout of an operation.
	opTimeout = 3 * time.Second
	// meeting is the interval of moments at which many clients make an operation, so that members
	// propose them together.
	meeting = 3 * time.Second
	prefix  = check.Prefix
)

var keys = []string{"k/a", "k/b", "k/c", "k/d", "k/e", "k/f"}

// runClient runs clients and watchers until the end of the simulation.
func runClient(c setup.Client) error {
	stop, err := stopRequest(c.StopAddress)
	if err != nil {
		return err
	}
	if c.Users {
		if err := enableAuth(&c); err != nil {
			return err
		}
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0))
	fork := func() *rand.Rand { return rand.New(rand.NewPCG(rng.Uint64(), rng.Uint64())) }
	var working sync.WaitGroup
	for n := range c.Workers {
		w := &worker{config: &c, id: c.First + n, member: -1, rng: fork(), seen: map[string]int64{}}
		// Some clients stay at one member, so that no other one answers for it.
		endpoints := c.Endpoints
		if n%2 == 1 {
			w.member = n / 2 % len(endpoints)
			endpoints = endpoints[w.member:][:1]
		}
		if err := w.connect(endpoints...); err != nil {
			return err
		}
		working.Go(func() { w.work(check.Strong) })
	}
	for n := range c.Readers {
		w := &worker{config: &c, id: c.First + c.Workers + n, member: n % len(c.Endpoints),
			rng: fork(), seen: map[string]int64{}}
		if err := w.connect(c.Endpoints[w.member]); err != nil {
			return err
		}
		working.Go(func() { w.work(check.Weak) })
	}
	for n := range c.Watchers {
		if err := startWatcher(&c, n, fork()); err != nil {
			return err
		}
	}
	for _, name := range c.Work {
		rng := fork()
		working.Go(func() {
			if err := works[name](&c, rng); err != nil {
				report(setup.Report{Failed: fmt.Sprintf("%s: %v", name, err)})
			}
		})
	}
	working.Wait()
	report(setup.Report{Ended: true})
	if c.Last {
		if err := last(&c, fork()); err != nil {
			return err
		}
	}
	<-stop // the watchers go on
	stopClients(fmt.Sprintf("clients from %d on", c.First))
	return nil
}

func now() time.Duration { return time.Duration(sys.Now()) }

func report(r setup.Report) {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	sys.Report(b)
}

// connect opens a client of the library, as the user root if users must authenticate.
func connect(endpoints ...string) (*client.Client, error) {
	if withUsers {
		return connectAs(rootUser, endpoints...)
	}
	return connectAs("", endpoints...)
}

// connectAs opens a client of a user, whose password is its name.
func connectAs(user string, endpoints ...string) (*client.Client, error) {
	c, err := client.New(client.Config{Endpoints: endpoints, Username: user, Password: user,
		DialTimeout: 2 * time.Second, Logger: newLog(), DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return sys.Network{}.Dial(ctx, "tcp", address)
			})}})
	if err == nil {
		clients = append(clients, c)
	}
	return c, err
}

// worker does one operation after the other.
type worker struct {
	*client.Client
	config *setup.Client
	id     int
	member int // -1 if the client chooses among all
	rng    *rand.Rand
	made   int
	// seen is the modification revision that this client saw last, by key.
	seen map[string]int64
	rev  int64
	// pinned is the revision that is to be read next, if it is not 0.
	pinned int64
}

func (w *worker) connect(endpoints ...string) (err error) {
	w.Client, err = connect(endpoints...)
	return err
}

func (w *worker) work(pick func(*rand.Rand) check.Kind) {
	for goesOn(w.config, w.config.Stop) {
		o := w.do(pick(w.rng), keys[w.rng.IntN(len(keys))])
		pause := time.Duration(w.rng.Int64N(w.config.Think))
		switch {
		case o.Outcome != check.Acked:
			pause = 20 * time.Millisecond
		case w.rng.IntN(5) == 0:
			pause = 0 // a burst
		case w.rng.IntN(5) == 0:
			pause = meeting - now()%meeting
		}
		if w.config.Calm && int64(now()+pause) > w.config.Healed {
			pause = min(pause, max(time.Duration(w.config.Healed)-now(), 0)+time.Second)
		}
		time.Sleep(pause)
		if w.config.Compact && w.id == w.config.First && w.rng.IntN(40) == 0 && w.rev > 30 {
			w.compact(min(w.rev-w.rng.Int64N(30), received.Load()))
		}
	}
}

func (w *worker) compact(rev int64) {
	report(setup.Report{Compact: rev})
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	if _, err := w.Compact(ctx, rev); err != nil {
		return // any outcome is allowed
	}
	// The compact revision itself stays readable.
	w.pinned = rev
	w.do(check.Pinned, prefix)
	w.pinned = 0
}

// do makes one operation and reports it.
func (w *worker) do(k check.Kind, key string) check.Op {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	o := check.Op{Client: w.id, Member: w.member, Kind: k, Key: key}
	w.made++
	pad := w.rng.IntN(100)
	switch {
	case w.config.Large && w.rng.IntN(3) == 0:
		pad *= 900
	case w.rng.IntN(30) == 0:
		pad *= 300
	}
	value := make([]byte, 0, pad+16)
	value = fmt.Appendf(value, "%d-%d", w.id, w.made)
	for n := range pad {
		value = append(value, 'a'+byte((n>>9+w.made)%26)) // what was in a sector before differs
	}
	o.Value = short(value)
	o.Call = now()
	err := w.call(ctx, &o, value)
	o.Ret = now()
	switch {
	case err == nil:
		o.Outcome = check.Acked
		w.learn(&o)
	default:
		// The library says which errors leave the effect of a write open.
		o.Outcome, o.Err = check.Refused, err.Error()
		if isUncertain(err) {
			o.Outcome = check.Unknown
		}
	}
	if !o.Writes() {
		o.Value = ""
	}
	report(setup.Report{Op: &o})
	return o
}

// call carries out an operation and sets its answer.
func (w *worker) call(ctx context.Context, o *check.Op, value []byte) error {
	switch o.Kind {
	case check.Put:
		r, err := w.Put(ctx, o.Key, value)
		if err != nil {
			return err
		}
		o.Rev = r.Header.Revision
	case check.Pair:
		i := int(o.Key[2] - 'a')
		o.Second = keys[(i+1+w.rng.IntN(len(keys)-1))%len(keys)]
		then := []client.Op{client.OpPut(o.Key, value), client.OpPut(o.Second, value)}
		var r *client.TxnResponse
		var err error
		if w.rng.IntN(2) == 0 {
			r, err = w.Txn(ctx).Then(then...).Commit()
		} else {
			// The second put is in a nested branch.
			r, err = w.Txn(ctx).Then(then[0],
				client.OpTxn([]client.Cmp{client.Exists("k/never")}, nil, then[1:])).Commit()
		}
		if err != nil {
			return err
		}
		o.Rev = r.Header.Revision
	case check.Cas:
		o.Expect = w.seen[o.Key]
		r, err := w.Txn(ctx).If(client.ModRevision(o.Key).Equal(o.Expect)).Then(client.OpPut(o.Key,
			value)).Else(client.OpGet(o.Key)).Commit()
		if err != nil {
			return err
		}
		if o.Rev, o.Done = r.Header.Revision, r.Succeeded; !o.Done {
			o.Found = items(r.Responses[0].Get.KVs)
		}
	case check.Del:
		r, err := w.Delete(ctx, o.Key)
		if err != nil {
			return err
		}
		o.Rev, o.Deleted = r.Header.Revision, r.Deleted
	default:
		return w.read(ctx, o)
	}
	return nil
}

func (w *worker) read(ctx context.Context, o *check.Op) error {
	var opts []client.GetOption
	if o.Kind != check.Get {
		o.Key = prefix
		opts = append(opts, client.WithPrefix())
	}
	if o.Kind == check.Pinned {
		o.Expect = max(1, w.rev-w.rng.Int64N(50))
		if w.pinned > 0 {
			o.Expect = w.pinned
		}
		opts = append(opts, client.WithRevision(o.Expect))
	}
	if o.Kind == check.Local || o.Kind == check.Pinned {
		opts = append(opts, client.WithSerializable())
	}
	r, err := w.Get(ctx, o.Key, opts...)
	if err != nil {
		return err
	}
	o.Rev, o.Found = r.Header.Revision, items(r.KVs)
	return nil
}

// learn remembers the modification revisions of an answer.
func (w *worker) learn(o *check.Op) {
	w.rev = max(w.rev, o.Rev)
	if o.Kind == check.Pinned {
		return
	}
	for _, i := range o.Found {
		w.seen[i.Key] = i.Mod
	}
	switch {
	case o.Kind == check.Del, o.Kind == check.Get && len(o.Found) == 0, o.Kind == check.Cas &&
		!o.Done && len(o.Found) == 0:
		w.seen[o.Key] = 0
	case o.Wrote():
		for _, k := range o.Keys() {
			w.seen[k] = o.Rev
		}
	}
}

// short is a value as reports have it: long ones are replaced by their length and checksum.
func short(b []byte) string {
	if len(b) <= 32 {
		return string(b)
	}
	return fmt.Sprintf("%s#%d:%x", b[:16], len(b), crc32.ChecksumIEEE(b))
}

func item(kv *client.KeyValue) *check.Item {
	if kv == nil {
		return nil
	}
	return &check.Item{Key: kv.Key, Value: short(kv.Value), Create: kv.CreateRevision,
		Mod: kv.ModRevision, Version: kv.Version}
}

func items(kvs []client.KeyValue) (out []check.Item) {
	for n := range kvs {
		out = append(out, *item(&kvs[n]))
	}
	return out
}
