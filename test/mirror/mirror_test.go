// Package mirror_test follows a store with client/mirror through all kinds of interruptions.
package mirror_test

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/client"
	"vigil/client/mirror"
	"vigil/test/link"
	"vigil/test/proc"
)

// rounds is how often the program is run; VIGIL_ROUNDS overrides it.
func rounds(t *testing.T, n int) int {
	if s := os.Getenv("VIGIL_ROUNDS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestFollow runs the example program while the member is killed, the network cut and the history
// compacted. The copy that its output describes must be the store's in the end.
func TestFollow(t *testing.T) {
	for _, p := range []proc.Program{proc.Vigil, proc.Etcd} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			f := &follow{T: t, server: proc.Start(t, proc.Config{Program: p, Memory: true}),
				net: link.New(t), left: "program"}
			f.addr = f.net.Node("member", f.server.Addr())
			f.stock = f.server.Client()
			for i := range rounds(t, 4) {
				f.round(uint64(i))
			}
		})
	}
}

type follow struct {
	*testing.T
	server *proc.Server
	net    *link.Network
	stock  *clientv3.Client // not through the network
	addr   string
	left   string // name of the program on the network
}

func (f *follow) round(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	prefix := fmt.Sprintf("round/%d/", seed)
	ctx := proc.Context(f.T)
	end := int64(0)
	write := func(n int) {
		for range n {
			key := prefix + fmt.Sprint(rng.IntN(30))
			var err error
			if rng.IntN(4) == 0 {
				_, err = f.stock.Delete(ctx, key)
			} else {
				var r *clientv3.PutResponse
				if r, err = f.stock.Put(ctx, key, fmt.Sprint(rng.Uint32())); err == nil {
					end = r.Header.Revision
				}
			}
			if err != nil {
				f.Fatalf("round %d: %v", seed, err)
			}
		}
	}
	write(20)
	program, err := proc.Launch([]string{proc.Path(f.T, proc.Follow), f.addr, prefix}, nil)
	if err != nil {
		f.Fatal(err)
	}
	defer program.Kill()
	f.net.Runs(f.left, program.Pid())
	if rng.IntN(3) > 0 {
		<-program.Log().Lines(1) // else what follows happens before it has begun
	}
	steps := []func(){
		func() { // the network is cut, and what is missed is compacted away
			f.net.Set(f.left, "member", link.Rule{Stall: true})
			f.net.Reset(f.left, "member")
			write(40)
			if _, err := f.stock.Compact(ctx, end); err != nil {
				f.Fatalf("round %d: compact: %v", seed, err)
			}
			write(5)
			f.net.Heal()
		},
		func() { // the member is killed
			f.server.Kill()
			f.server.Restart()
			write(10)
		},
		func() { // connections are lost again and again
			for range 5 {
				write(3)
				f.net.Reset(f.left, "member")
			}
		},
	}
	rng.Shuffle(len(steps), func(i, j int) { steps[i], steps[j] = steps[j], steps[i] })
	for _, step := range steps {
		write(10)
		step()
	}
	// What comes last in the store and in the order of keys comes last in the output.
	last := prefix + "~"
	if _, err := f.stock.Put(ctx, last, "end"); err != nil {
		f.Fatal(err)
	}
	select {
	case <-program.Log().Wait(fmt.Sprintf("%q = %q\n", last, "end")):
	case <-program.Exited():
		f.Fatalf("round %d: the program ended: %s", seed, program.Log().Tail(10))
	case <-time.After(40 * time.Second):
		f.Fatalf("round %d: the program does not come to the end: %s", seed, program.Log().Tail(10))
	}
	want := map[string]string{}
	r, err := f.stock.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		f.Fatal(err)
	}
	for _, kv := range r.Kvs {
		want[string(kv.Key)] = string(kv.Value)
	}
	if got := f.replay(program.Log().String()); !maps.Equal(got, want) {
		f.Fatalf("round %d: the copy is %v\nthe store has %v", seed, got, want)
	}
}

// replay applies the lines of the program.
func (f *follow) replay(output string) map[string]string {
	got := map[string]string{}
	for line := range strings.Lines(output) {
		var key, value string
		if _, err := fmt.Sscanf(line, "%q = %q\n", &key, &value); err == nil {
			got[key] = value
		} else if _, err := fmt.Sscanf(line, "%q is gone\n", &key); err == nil {
			if _, had := got[key]; !had {
				f.Fatalf("the program received the deletion of %q, which it did not have", key)
			}
			delete(got, key)
		} else {
			f.Fatalf("the program wrote %q", line)
		}
	}
	return got
}

// TestAnotherStore: when a store of an older state or of another cluster takes the place of the one
// that is mirrored, the difference is reported and the mirror continues.
func TestAnotherStore(t *testing.T) {
	for name, samePeer := range map[string]bool{"older": true, "another cluster": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := proc.Context(t)
			old := proc.Start(t,
				proc.Config{Memory: true, ClientPort: proc.FreePort(t), PeerPort: proc.FreePort(t)})
			c, err := client.Connect(ctx, client.Config{Endpoints: []string{old.Addr()}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for i := range 10 {
				if _, err := c.Put(ctx, fmt.Sprint("k", i), []byte("old")); err != nil {
					t.Fatal(err)
				}
			}
			m, err := mirror.Follow(ctx, c, "", mirror.String)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			before, err := m.Wait(ctx)
			if err != nil || before.Len() != 10 {
				t.Fatal(before, err)
			}
			got := map[string]string{}
			changes, stop := iter.Pull2(m.Changes(ctx))
			defer stop()
			follow := func(done func() bool) {
				t.Helper()
				for !done() {
					ch, err, more := changes()
					if !more || err != nil {
						t.Fatalf("%v; the copy is %v", err, got)
					}
					if ch.New == nil {
						delete(got, ch.Key())
					} else {
						got[ch.Key()] = ch.New.Value
					}
				}
			}
			follow(func() bool { return len(got) == 10 })

			var clientPort, peerPort int
			if _, err := fmt.Sscanf(old.Addr()+" "+old.PeerAddr(), "127.0.0.1:%d 127.0.0.1:%d",
				&clientPort, &peerPort); err != nil {
				t.Fatal(err)
			}
			old.Kill()
			if !samePeer {
				peerPort = proc.FreePort(t)
			}
			next := proc.Start(t,
				proc.Config{Memory: true, ClientPort: clientPort, PeerPort: peerPort})
			// The first key has the revisions that it had before, and another value.
			for _, key := range []string{"k0", "new"} {
				if _, err := next.Client().Put(ctx, key, "new"); err != nil {
					t.Fatal(err)
				}
			}
			want := map[string]string{"k0": "new", "new": "new"}
			follow(func() bool { return maps.Equal(got, want) })
			if s := m.Status(); s.Lists != 2 || s.Revision >= before.Revision() || s.Keys != 2 {
				t.Errorf("%+v", s)
			}
		})
	}
}
