package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// failingDisk is a disk whose operations fail while it is active. Its files cannot be mapped, so
// that they are read.
type failingDisk struct {
	active atomic.Bool
	fault  func(op faultfs.Op, name string) faultfs.Fault
}

func (f *failingDisk) wrap(disk *memfs.FS) *faultfs.FS {
	return faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpMap {
			return faultfs.Fail
		}
		if f.active.Load() && f.fault != nil {
			return f.fault(op, name)
		}
		return faultfs.None
	})
}

// readsFail makes reads of those files of the store fail that were written since it was opened.
func readsFail(fault faultfs.Fault) func(op faultfs.Op, name string) faultfs.Fault {
	return func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpRead && strings.Contains(name, "history/") &&
			strings.HasSuffix(name, ".log.tmp") {
			return fault
		}
		return faultfs.None
	}
}

// sealAll waits until the full segments of a store are sealed. A file that cannot be read while it
// is being sealed ends the member.
func sealAll(t *testing.T, r *Replica) {
	t.Helper()
	if _, err := r.current.Load().Log.Sync(); err != nil {
		t.Fatal(err)
	}
}

func (n *mesh) setOffering(f func(ctx context.Context) error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.offering = f
}

// A member that cannot describe its state is sent everything, whatever the cause; damage is noted.
func TestMemberThatCannotOfferIsSentEverything(t *testing.T) {
	for name, c := range map[string]struct {
		fault    func(op faultfs.Op, name string) faultfs.Fault // of the receiver's disk
		offering func(ctx context.Context) error
		damage   bool
	}{
		"damage": {fault: readsFail(faultfs.Errno(syscall.EIO)), damage: true},
		"no hard links": {fault: func(op faultfs.Op, name string) faultfs.Fault {
			if op == faultfs.OpLink {
				return faultfs.Errno(syscall.EPERM)
			}
			return faultfs.None
		}},
		"no answer": {offering: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
		"refused":   {offering: func(ctx context.Context) error { return errors.New("unsupported") }},
	} {
		t.Run(name, func(t *testing.T) {
			var disks [3]failingDisk
			g := startGroup(t, func(i int, cfg *Config) {
				cfg.HistorySegmentBytes = 8 << 10
				if c.offering != nil {
					cfg.SnapshotOfferTimeout = 300 * time.Millisecond
				}
				disks[i-1].fault = c.fault
				cfg.FS = disks[i-1].wrap(cfg.FS.(*memfs.FS))
			})
			for i := range 200 {
				g.put(fmt.Sprintf("k%d", i), junk(300))
			}
			r := g.other()
			g.caughtUp(r)
			g.lag(r, 50)
			sealAll(t, r)
			disks[slices.Index(g.list, r)].active.Store(c.fault != nil)
			g.net.setOffering(c.offering)
			g.net.setCut(r.memberID, false)
			await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > 0 })
			// The sender counts after the receiver.
			await(t, "everything was sent", func() bool {
				return slices.ContainsFunc(g.list,
					func(o *Replica) bool { return o.sender.Stats().Full > 0 })
			})
			if found := r.Metrics().Damaged > 0; found != c.damage {
				t.Errorf("damage was found: %t", found)
			}
			if c.damage {
				await(t, "the alarm",
					func() bool {
						return slices.Contains(g.leader().Alarms.Active(),
							corrupt(r.memberID))
					})
			}
		})
	}
}

// The copy that an offer has put aside goes when no transfer follows, and the answer to an offer
// says if the member has applied its position.
func TestOfferWithoutTransfer(t *testing.T) {
	g := startGroup(t, func(i int, c *Config) {
		steady(i, c)
		if i > 1 { // the leader has more time: it must hear the answer of the member
			c.SnapshotOfferTimeout = 50 * time.Millisecond
		}
	})
	for i := range 20 {
		g.put(fmt.Sprintf("k%d", i), junk(300))
	}
	lead, r := g.list[0], g.list[1]
	if now := g.leader(); now != lead {
		if err := now.Leadership.MoveLeader(t.Context(), lead.memberID); err != nil {
			t.Fatal(err)
		}
	}
	g.caughtUp(r)
	ask := func(index uint64) transfer.Answer {
		t.Helper()
		b, err := r.OfferSnapshot(t.Context(), lead.memberID, transfer.Offer{Index: index}.Encode())
		if err != nil {
			t.Fatal(err)
		}
		a, err := transfer.DecodeAnswer(b)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	if a := ask(r.applied.Load() + 100); !a.Have || a.Ahead {
		t.Fatalf("%+v", a)
	}
	aside := r.cfg.HistoryDir + ".incoming"
	await(t, "the removal of the copy", func() bool {
		_, err := r.cfg.FS.Stat(aside)
		return errors.Is(err, fs.ErrNotExist)
	})
	if a := ask(r.applied.Load()); a.Have || !a.Ahead {
		t.Errorf("an offer that is outdated: %+v", a)
	}
	// A leader that learns so sends nothing.
	term := lead.node.Status().Term
	failures := lead.sender.Stats().Failures
	lead.sender.Send(&raftpb.Message{To: &r.memberID, Term: &term})
	await(t, "the end of the attempt", func() bool { return lead.sender.Stats().Sending == 0 })
	if s := lead.sender.Stats(); s.Failures != failures {
		t.Errorf("%+v", s)
	}
	if n := g.net.transfers(); len(n) > 0 {
		t.Errorf("transfers of %d bytes to a member that has everything", n)
	}
}

// A store that is compacted while the leader compares histories is sent all the same.
func TestCompactionDuringEveryOffer(t *testing.T) {
	g := startGroup(t, nil)
	for i := range 50 {
		g.put(fmt.Sprintf("k%d", i), junk(300))
	}
	r := g.other()
	g.lag(r, 50)
	lead := g.leader()
	var offers atomic.Int64
	g.net.setOffering(func(ctx context.Context) error {
		offers.Add(1)
		res, err := lead.Put(ctx, &kv.PutRequest{Key: []byte("k")})
		if err == nil {
			_, err = lead.Compact(ctx, &kv.CompactRequest{Revision: res.Revision})
		}
		return err
	})
	g.net.setCut(r.memberID, false)
	await(t, "a snapshot", func() bool { return r.receiver.Stats().Installed > 0 })
	if n := offers.Load(); n >= 2*5 {
		t.Errorf("%d offers", n)
	}
}

// Every read for somebody outside notes damage, and none says the name of a file.
func TestReadsNoteDamageAndHideFiles(t *testing.T) {
	for _, damage := range []bool{true, false} {
		fault := faultfs.Errno(syscall.EACCES)
		if damage {
			fault = faultfs.Errno(syscall.EIO)
		}
		f := failingDisk{fault: readsFail(fault)}
		c := config(f.wrap(memfs.New()))
		c.HistorySegmentBytes = 4 << 10
		c.ScrubBytesPerSecond = 0
		r := start(t, c)
		for i := range 200 {
			mustPut(t, r, fmt.Sprintf("k%03d", i), fmt.Sprintf("%0200d", i))
		}
		sealed := func() (n int) {
			names, err := c.FS.List(c.HistoryDir)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range names {
				if strings.HasSuffix(name, ".seg") {
					n++
				}
			}
			return n
		}
		sealAll(t, r)
		if n := sealed(); n <= 5 {
			t.Fatalf("%d sealed segments", n)
		}
		backup, err := r.Backup(t.Context(), "3.7.0", "3.7.0")
		if err != nil {
			t.Fatal(err)
		}
		defer backup.Close()
		f.active.Store(true)
		for name, read := range map[string]func() error{
			"hashkv": func() error { _, err := r.HashKV(t.Context(), 0); return err },
			"hash":   func() error { _, err := r.Hash(t.Context()); return err },
			"backup": func() error {
				b, err := r.Backup(t.Context(), "3.7.0", "3.7.0")
				if err == nil {
					defer b.Close()
					err = b.Write(io.Discard)
				}
				return err
			},
			"a backup under way": func() error { return backup.Write(io.Discard) },
		} {
			r.damage.Forget() // the same place counts once
			err := read()
			switch found := r.Metrics().Damaged > 0; {
			case err == nil:
				t.Errorf("%s: no error", name)
			case strings.Contains(err.Error(), "history/"):
				t.Errorf("%s: the error names a file: %v", name, err)
			case damage && (!found || !errors.Is(err, kv.ErrCorrupt)):
				t.Errorf("%s: %v, counted: %t", name, err, found)
			case !damage && found:
				t.Errorf("%s: %v, counted as damage", name, err)
			}
		}
		if damage {
			await(t, "the alarm", func() bool { return r.Alarms.Raised(corrupt(r.memberID)) })
		}
		f.active.Store(false)
		_ = r.Stop(context.Background())
	}
}

// Damage that a compaction and the rewrite of segments meet is counted and raises the alarm,
// although no client reads.
func TestBackgroundNotesDamage(t *testing.T) {
	// sealed segment; the store may seal later ones, and a failure of that ends the member
	var newest string
	fail := readsFail(faultfs.Errno(syscall.EIO))
	f := failingDisk{fault: func(op faultfs.Op, name string) faultfs.Fault {
		if filepath.Base(name) > newest+".log.tmp" {
			return faultfs.None
		}
		return fail(op, name)
	}}
	c := config(f.wrap(memfs.New()))
	c.HistorySegmentBytes = 4 << 10
	c.ScrubBytesPerSecond = 0
	r := start(t, c)
	var rev int64
	for i := range 200 {
		rev = mustPut(t, r, fmt.Sprintf("k%03d", i%10), fmt.Sprintf("%0200d", i))
	}
	sealAll(t, r)
	names, err := c.FS.List(c.HistoryDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, ".seg"); ok {
			newest = max(newest, id)
		}
	}
	if newest == "" {
		t.Fatalf("no sealed segment in %q", names)
	}
	f.active.Store(true)
	if _, err := r.Compact(t.Context(), &kv.CompactRequest{Revision: rev}); err != nil {
		t.Fatal(err)
	}
	await(t, "the alarm", func() bool { return r.Alarms.Raised(corrupt(r.memberID)) })
	if r.Metrics().Damaged == 0 {
		t.Error("nothing was counted")
	}
	f.active.Store(false)
}
