package backup

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"vigil/test/proc"
)

const (
	accounts = 8
	money    = 1000
)

// transfer moves money between accounts, a number of times or until the context ends, and counts
// the transfers in a key of the same transaction.
func transfer(ctx context.Context, c *clientv3.Client, times int) error {
	balance := [accounts]int{money}
	for n := 0; n < times; n++ {
		from, to := n%accounts, (n*3+1)%accounts
		amount := min(balance[from], n%17)
		ops := []clientv3.Op{clientv3.OpPut("count", strconv.Itoa(n))}
		if from != to {
			balance[from] -= amount
			balance[to] += amount
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("account-%d", from),
				strconv.Itoa(balance[from])),
				clientv3.OpPut(fmt.Sprintf("account-%d", to), strconv.Itoa(balance[to])))
		}
		if _, err := c.Txn(ctx).Then(ops...).Commit(); err != nil {
			return err
		}
	}
	return nil
}

// check goes through the history in a snapshot: at every revision no money is missing, and no
// revision is.
func check(t testing.TB, file string) (revision int64) {
	t.Helper()
	db := must(bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true}))(t)
	defer db.Close()
	err := db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			return err
		}
		var compact int64
		if b := tx.Bucket([]byte("meta")).Get([]byte("finishedCompactRev")); b != nil {
			compact = int64(binary.BigEndian.Uint64(b))
		}
		balance := map[string]int{}
		audit := func(at int64) error {
			sum := 0
			for _, n := range balance {
				sum += n
			}
			if at >= compact && at > 2 && sum != money {
				return fmt.Errorf("at revision %d there is %d of %d: %v", at, sum, money, balance)
			}
			return nil
		}
		err := tx.Bucket([]byte("key")).ForEach(func(k, v []byte) error {
			rev := int64(binary.BigEndian.Uint64(k))
			if rev != revision {
				if rev > compact+1 && revision >= compact && rev != revision+1 && revision > 0 {
					return fmt.Errorf("revision %d follows %d", rev, revision)
				}
				if err := audit(revision); err != nil {
					return err
				}
				revision = rev
			}
			var kv mvccpb.KeyValue
			if err := proto.Unmarshal(v, &kv); err != nil {
				return err
			}
			if string(kv.Key) != "count" {
				n, err := strconv.Atoi(string(kv.Value))
				balance[string(kv.Key)] = n
				return err
			}
			return nil
		})
		if err != nil {
			return err
		}
		return audit(revision)
	})
	if err != nil {
		t.Errorf("%s: %v", file, err)
	}
	return revision
}

// TestUnderLoad: snapshots that are taken while transactions and compactions go on hold whole
// transactions only, and all of them up to one.
func TestUnderLoad(t *testing.T) {
	vigil := proc.Start(t, proc.Config{Memory: true})
	c := client(t, vigil, false)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := transfer(ctx, c, 1<<30); ctx.Err() == nil {
			t.Error(err)
		}
	})
	dir := proc.Dir(t)
	last := int64(0)
	for i := range 8 {
		for rev := last; rev < last+200; {
			rev = must(c.Get(ctx, "count"))(t).Header.Revision
		}
		if i%2 == 1 {
			rev := must(c.Get(ctx, "count"))(t).Header.Revision
			must(c.Compact(ctx, rev-50))(t)
		}
		file := filepath.Join(dir, fmt.Sprint(i))
		run(t, proc.Vigilctl, "snapshot", "save", file, "--endpoints", vigil.Addr())
		rev := check(t, file)
		if rev < last+200 {
			t.Errorf("snapshot %d ends at revision %d, the one before at %d", i, rev, last)
		}
		last = rev
	}
	stop()
	wg.Wait()
}

// TestLetGo: clients that break off, or do not read on, take nothing from those that come after
// them.
func TestLetGo(t *testing.T) {
	vigil := proc.Start(t, proc.Config{Memory: true})
	c := client(t, vigil, false)
	value := string(make([]byte, 1<<20))
	for i := range 30 {
		must(c.Put(t.Context(), fmt.Sprint("large-", i), value))(t)
	}
	// One does not read and stays.
	stalled := must(client(t, vigil, false).Snapshot(t.Context()))(t)
	defer stalled.Close()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		r, err := client(t, vigil, false).SnapshotWithVersion(ctx)
		if err != nil {
			// The last one may not be over yet on the member's side.
			cancel()
			continue
		}
		if _, err := io.ReadFull(r.Snapshot, make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
		cancel()
		_, err = io.Copy(io.Discard, r.Snapshot)
		if err == nil || !errors.Is(err, context.Canceled) {
			t.Errorf("a stream that was cut: %v", err)
		}
	}
	must(c.Put(t.Context(), "beside", "it"))(t)
	save(t, vigil, "after.db", false)
	if n, err := io.Copy(io.Discard, stalled); err != nil || n < 30<<20 || n%512 != 32 {
		t.Errorf("the stalled one has %d bytes, %v", n, err)
	}
	if vigil.Stop() != 0 {
		t.Error("it did not stop well")
	}
}

// TestCluster: members that are restored from one file are a cluster, with the same content; a
// learner's snapshot is as good as a voter's.
func TestCluster(t *testing.T) {
	etcd := proc.Start(t, proc.Config{Program: proc.Etcd, Memory: true})
	fill(t, client(t, etcd, false))
	want := dump(t, etcd, true, 10)
	file := save(t, etcd, "etcd.db", true)
	etcd.Kill()

	var list []proc.Config
	initial, comma := "", ""
	for i := range 3 {
		c := proc.Config{Name: fmt.Sprintf("m%d", i+1), DataDir: filepath.Join(proc.Dir(t), "data"),
			ClientPort: proc.FreePort(t), PeerPort: proc.FreePort(t)}
		initial += fmt.Sprintf("%s%s=http://127.0.0.1:%d", comma, c.Name, c.PeerPort)
		comma = ","
		list = append(list, c)
	}
	var members []*proc.Server
	for _, c := range list {
		run(t, proc.Vigilctl, "snapshot", "restore", file, "--data-dir", c.DataDir, "--name",
			c.Name, "--initial-cluster", initial,
			"--initial-cluster-token", "restored", "--initial-advertise-peer-urls",
			fmt.Sprintf("http://127.0.0.1:%d", c.PeerPort))
		c.InitialCluster = initial
		s := proc.New(t, c)
		s.Launch()
		members = append(members, s)
	}
	ids := map[uint64]bool{}
	for _, s := range members {
		s.Ready()
		equal(t, s.DataDir(), dump(t, s, true, 10), want)
		ids[must(client(t, s, true).MemberList(t.Context()))(t).Header.ClusterId] = true
	}
	if len(ids) != 1 {
		t.Errorf("the members are of clusters %v", ids)
	}
	c := client(t, members[0], true)
	rev := must(c.Put(t.Context(), "new", "1"))(t).Header.Revision
	for _, s := range members[1:] {
		c := client(t, s, true)
		must(c.Get(t.Context(), "new"))(t)
		a := must(c.HashKV(t.Context(), members[0].Addr(), rev))(t)
		if b := must(c.HashKV(t.Context(), s.Addr(), rev))(t); a.Hash != b.Hash {
			t.Errorf("hashes %x and %x", a.Hash, b.Hash)
		}
	}

	// A learner gets all of it from the others, in a snapshot of their own making, and gives it on.
	lc := proc.Config{Name: "m4", DataDir: filepath.Join(proc.Dir(t), "data"),
		ClientPort: proc.FreePort(t), PeerPort: proc.FreePort(t)}
	peer := fmt.Sprintf("http://127.0.0.1:%d", lc.PeerPort)
	for {
		// Members that have just met are not known to be healthy.
		_, err := c.MemberAddAsLearner(t.Context(), []string{peer})
		if err == nil {
			break
		}
		if !errors.Is(err, rpctypes.ErrUnhealthy) {
			t.Fatal(err)
		}
	}
	lc.InitialCluster = initial + ",m4=" + peer
	lc.Args = []string{"--initial-cluster-state=existing"}
	learner := proc.New(t, lc)
	learner.Launch()
	learner.Ready()
	for {
		st, err := c.Status(t.Context(), learner.Addr())
		if err == nil && st.IsLearner && st.Header.Revision == rev {
			break
		}
	}
	voter := save(t, members[1], "voter.db", true)
	own := filepath.Join(proc.Dir(t), "learner.db")
	// A learner authenticates no user, and knows the tokens that others have issued.
	name, password, _ := strings.Cut(root, ":")
	token := must(c.Authenticate(t.Context(), name, password))(t).Token
	r := must(client(t, learner,
		false).Snapshot(metadata.AppendToOutgoingContext(t.Context(), "token", token)))(t)
	defer r.Close()
	f := must(os.Create(own))(t)
	must(io.Copy(f, r))(t)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if a, b := run(t, proc.Etcdutl, "hashkv", own), run(t, proc.Etcdutl, "hashkv", voter); a != b {
		t.Errorf("the learner's snapshot has the hash %sthe voter's %s", a, b)
	}
}
