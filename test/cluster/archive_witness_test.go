package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// picture is what a cluster had at a revision.
type picture struct {
	revision int64
	at       time.Time
	// kvs are all keys, with the values, versions and leases that they had.
	kvs map[string]string
	// hash is HashKV at the revision, with the compact revision that it is of.
	hash    uint32
	compact int64
	// leases have the granted time and the keys of each lease; users the roles of each user, roles
	// the permissions of each role.
	leases, users, roles map[string]string
}

// witness takes pictures of the living cluster, and records every event, for the comparison with
// what is restored. Nothing but its methods compacts, or changes what has no revision.
type witness struct {
	r      *recorder
	random *rand.Rand

	pictures []*picture

	watch struct {
		sync.Mutex
		events []uint64 // by revision: a hash of its events
		last   int64
		err    error
	}
	stop context.CancelFunc
	done sync.WaitGroup
}

func newWitness(r *recorder) *witness {
	w := &witness{r: r, random: rand.New(rand.NewPCG(99, 1))}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	w.done.Go(func() { w.record(ctx) })
	return w
}

// end ends the record of events.
func (w *witness) end() {
	w.stop()
	w.done.Wait()
}

// record watches all keys from the first revision on, at a member that runs.
func (w *witness) record(ctx context.Context) {
	random := rand.New(rand.NewPCG(98, 1))
	next := int64(1)
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(ctx)
		for resp := range w.r.any(random).Watch(clientv3.WithRequireLeader(one), "",
			clientv3.WithPrefix(), clientv3.WithRev(next)) {
			if resp.CompactRevision > 0 {
				w.watch.Lock()
				w.watch.err = fmt.Errorf("revision %d was compacted before its events arrived: %w",
					next, resp.Err())
				w.watch.Unlock()
				cancel()
				return
			}
			if resp.Err() != nil {
				break
			}
			w.watch.Lock()
			for _, e := range resp.Events {
				for int64(len(w.watch.events)) <= e.Kv.ModRevision {
					w.watch.events = append(w.watch.events, 0)
				}
				// A message has all events of its revisions.
				w.watch.events[e.Kv.ModRevision] = eventHash(w.watch.events[e.Kv.ModRevision], e)
				next = e.Kv.ModRevision + 1
				w.watch.last = e.Kv.ModRevision
			}
			w.watch.Unlock()
		}
		cancel()
	}
}

func eventHash(before uint64, e *clientv3.Event) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, before, e.Type, text(e.Kv))
	return h.Sum64()
}

// text is a key with all that it has.
func text(kv *mvccpb.KeyValue) string {
	return fmt.Sprintf("%s=%s created %d modified %d version %d lease %x", kv.Key, kv.Value,
		kv.CreateRevision, kv.ModRevision, kv.Version, kv.Lease)
}

// call makes a call at a member that runs, again until it succeeds or the error is one of those
// that count as success.
func (w *witness) call(t testing.TB, what string,
	do func(ctx context.Context, c *clientv3.Client) error, done ...error) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		err := do(ctx, w.r.any(w.random))
		cancel()
		if err == nil || slices.ContainsFunc(done,
			func(target error) bool { return errors.Is(err, target) }) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// compact compacts what is before the last pictures but three.
func (w *witness) compact(t testing.TB) {
	t.Helper()
	n := len(w.pictures) - 4
	if n < 0 {
		return
	}
	at := w.pictures[n].revision
	w.watch.Lock()
	behind := w.watch.last < at
	w.watch.Unlock()
	if behind {
		return // the record of events needs it
	}
	w.call(t, "compaction", func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Compact(ctx, at, clientv3.WithCompactPhysical())
		return err
	}, rpctypes.ErrCompacted)
}

// during takes pictures for a time, n of them, and compacts after each.
func (w *witness) during(t testing.TB, long time.Duration, n int) {
	t.Helper()
	end := time.Now().Add(long)
	for ; n > 0; n-- {
		time.Sleep(time.Duration(w.random.Int64N(max(int64(time.Until(end))/int64(n), 1))))
		w.take(t)
		w.compact(t)
	}
	time.Sleep(time.Until(end))
}

// take changes leases, users and roles, and takes a picture.
func (w *witness) take(t testing.TB) {
	t.Helper()
	n := len(w.pictures)
	if n > 0 {
		// What follows has no revision; it must not count as of the one of the last picture.
		w.call(t, "a put", func(ctx context.Context, c *clientv3.Client) error {
			_,
				err := c.Put(ctx, "between", "x")
			return err
		})
	}
	lease, user, role := clientv3.LeaseID(1000+n), fmt.Sprint("user", n), fmt.Sprint("role", n)
	type step struct {
		what string
		do   func(ctx context.Context, c *clientv3.Client) error
		done error
	}
	steps := []step{
		{"a lease", func(ctx context.Context, c *clientv3.Client) error {
			_, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseGrant(ctx,
				&pb.LeaseGrantRequest{ID: int64(lease), TTL: 10_000 + int64(n)})
			return rpctypes.Error(err)
		}, rpctypes.ErrLeaseExist},
		{"a key with it", func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, fmt.Sprint("leased", n%5), user, clientv3.WithLease(lease))
			return err
		}, nil},
		{"a user", func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.UserAdd(ctx, user, "secret")
			return err
		}, rpctypes.ErrUserAlreadyExist},
		{"a role", func(ctx context.Context, c *clientv3.Client) error {
			_,
				err := c.RoleAdd(ctx, role)
			return err
		}, rpctypes.ErrRoleAlreadyExist},
		{"a permission", func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.RoleGrantPermission(ctx, role, role, role+"x",
				clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		}, nil},
		{"a role of a user", func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.UserGrantRole(ctx, user, role)
			return err
		}, nil},
	}
	if n >= 4 {
		steps = append(steps,
			step{"the end of a lease", func(ctx context.Context, c *clientv3.Client) error {
				_, err := c.Revoke(ctx, lease-4)
				return err
			}, rpctypes.ErrLeaseNotFound},
			step{"the end of a user", func(ctx context.Context, c *clientv3.Client) error {
				_, err := c.UserDelete(ctx, fmt.Sprint("user", n-4))
				return err
			}, rpctypes.ErrUserNotFound},
			step{"the end of a role", func(ctx context.Context, c *clientv3.Client) error {
				_, err := c.RoleDelete(ctx, fmt.Sprint("role", n-3))
				return err
			}, rpctypes.ErrRoleNotFound})
	}
	for _, s := range steps {
		w.call(t, s.what, s.do, s.done)
	}
	p := &picture{}
	w.call(t, "a put", func(ctx context.Context, c *clientv3.Client) error {
		resp, err := c.Put(ctx, "picture", user)
		if err == nil {
			p.revision, p.at = resp.Header.Revision, time.Now()
		}
		return err
	})
	w.call(t, "a picture",
		func(ctx context.Context, c *clientv3.Client) error { return p.take(ctx, c) })
	w.pictures = append(w.pictures, p)
}

// take reads all of a picture at its revision.
func (p *picture) take(ctx context.Context, c *clientv3.Client) error {
	p.kvs, p.leases, p.users, p.roles = map[string]string{}, map[string]string{},
		map[string]string{}, map[string]string{}
	resp, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(p.revision))
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		p.kvs[string(kv.Key)] = text(kv)
	}
	hash, err := c.HashKV(ctx, c.Endpoints()[0], p.revision)
	if err != nil {
		return err
	}
	p.hash, p.compact = hash.Hash, hash.CompactRevision
	leases, err := c.Leases(ctx)
	if err != nil {
		return err
	}
	for _, l := range leases.Leases {
		ttl, err := c.TimeToLive(ctx, l.ID, clientv3.WithAttachedKeys())
		if err != nil {
			return err
		}
		slices.SortFunc(ttl.Keys, slices.Compare)
		p.leases[fmt.Sprintf("%x", l.ID)] = fmt.Sprintf("%d s, keys %q", ttl.GrantedTTL, ttl.Keys)
	}
	users, err := c.UserList(ctx)
	if err != nil {
		return err
	}
	for _, u := range users.Users {
		got, err := c.UserGet(ctx, u)
		if err != nil {
			return err
		}
		p.users[u] = fmt.Sprint(got.Roles)
	}
	roles, err := c.RoleList(ctx)
	if err != nil {
		return err
	}
	for _, name := range roles.Roles {
		got, err := c.RoleGet(ctx, name)
		if err != nil {
			return err
		}
		p.roles[name] = strings.Join(strings.Fields(fmt.Sprint(got.Perm)), " ")
	}
	return nil
}

// compare compares a store that was restored up to the revision of a picture.
func (w *witness) compare(t testing.TB, c *clientv3.Client, want *picture) {
	t.Helper()
	got := &picture{revision: want.revision}
	if err := got.take(proc.Context(t), c); err != nil {
		t.Fatalf("revision %d: %v", want.revision, err)
	}
	head, err := c.Get(proc.Context(t), "picture")
	if err != nil || head.Header.Revision != want.revision {
		t.Errorf("the restored store is at revision %d, want %d (%v)", head.Header.Revision,
			want.revision, err)
	}
	if got.hash != want.hash || got.compact != want.compact {
		t.Errorf("revision %d: HashKV is %d with compact revision %d, want %d with %d",
			want.revision, got.hash, got.compact, want.hash, want.compact)
	}
	same(t, want.revision, "keys", got.kvs, want.kvs)
	same(t, want.revision, "leases", got.leases, want.leases)
	same(t, want.revision, "users", got.users, want.users)
	same(t, want.revision, "roles", got.roles, want.roles)
	w.compareEvents(t, c, got.compact, want.revision)
	w.compareReads(t, c, got.compact, want.revision)
}

// compareReads compares reads at the revisions of all pictures that a restored store still has.
func (w *witness) compareReads(t testing.TB, c *clientv3.Client, compact, revision int64) (n int) {
	t.Helper()
	for _, p := range w.pictures {
		if p.revision < compact || p.revision >= revision {
			continue
		}
		resp, err := c.Get(proc.Context(t), "", clientv3.WithPrefix(), clientv3.WithRev(p.revision))
		if err != nil {
			t.Fatalf("a read at revision %d of a store of revision %d: %v",
				p.revision, revision, err)
		}
		got := map[string]string{}
		for _, kv := range resp.Kvs {
			got[string(kv.Key)] = text(kv)
		}
		same(t, p.revision, fmt.Sprintf("keys in a store of revision %d", revision), got, p.kvs)
		n++
	}
	return n
}

func same(t testing.TB, revision int64, what string, got, want map[string]string) {
	t.Helper()
	wrong := 0
	for k, v := range want {
		if got[k] != v {
			wrong++
			if wrong < 4 {
				t.Errorf("revision %d, %s: %q is %.300q, want %.300q", revision, what, k, got[k], v)
			}
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			wrong++
			if wrong < 4 {
				t.Errorf("revision %d, %s: %q should not be there: %.300q", revision, what, k, v)
			}
		}
	}
	if wrong > 3 {
		t.Errorf("revision %d, %s: %d differ, of %d", revision, what, wrong, len(want))
	}
}

// compareEvents compares the events that a restored store has, from the revision after the
// compaction up to one, with those that were recorded.
func (w *witness) compareEvents(t testing.TB, c *clientv3.Client, compact, revision int64) {
	t.Helper()
	w.watch.Lock()
	defer w.watch.Unlock()
	if w.watch.err != nil {
		t.Fatal(w.watch.err)
	}
	from, to := max(compact+1, 2), min(revision, w.watch.last)
	if from > to {
		return
	}
	ctx, cancel := context.WithCancel(proc.Context(t))
	defer cancel()
	got := make([]uint64, to-from+1)
	for resp := range c.Watch(ctx, "", clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := resp.Err(); err != nil {
			t.Fatalf("a watch from revision %d of a store of revision %d: %v", from, revision, err)
		}
		at := int64(0)
		for _, e := range resp.Events {
			if at = e.Kv.ModRevision; at <= to {
				got[at-from] = eventHash(got[at-from], e)
			}
		}
		if at >= to {
			break
		}
	}
	if ctx.Err() != nil {
		t.Fatalf("a watch from revision %d did not reach %d", from, to)
	}
	for i, h := range got {
		if want := w.watch.events[from+int64(i)]; h != want {
			t.Fatalf("the events of revision %d differ in a store of revision %d",
				from+int64(i), revision)
		}
	}
}
