package server

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/kv"
	"vigil/internal/member/replica"
	"vigil/internal/offline/datadir"
	"vigil/internal/state/cluster"
	"vigil/internal/vfs"
	"vigil/internal/vfs/memfs"
)

var writeGolden = flag.Bool("write-golden", false,
	"write the golden data directories of the current versions")

// golden is what a stored data directory holds, as a client sees it.
type golden struct {
	Revision, CompactRevision int64
	Keys                      []goldenKey
	// Older is how many keys there were at a few revisions above the compaction.
	Older map[int64]int64
}

type goldenKey struct {
	Key, Value                 string
	Created, Modified, Version int64
}

// The stored directories: one of a member that was stopped, and one of a member that was killed.
const (
	goldenClosed = "closed"
	goldenKilled = "killed"
	goldenFile   = "keys.json"
)

// TestGoldenDataDirs starts a member on a copy of each stored data directory. It must have every
// key, and after a few writes and a restart still: no format has changed under its version. New
// versions are written with -write-golden.
func TestGoldenDataDirs(t *testing.T) {
	if *writeGolden {
		for _, how := range []string{goldenClosed, goldenKilled} {
			storeGolden(t, filepath.Join("testdata", "datadir-v1", how), how == goldenKilled)
		}
	}
	dirs, err := filepath.Glob("testdata/datadir-v*/*")
	if err != nil || len(dirs) < 2 {
		t.Fatal(dirs, err)
	}
	for _, stored := range dirs {
		t.Run(strings.TrimPrefix(stored, "testdata/"), func(t *testing.T) {
			var want golden
			b, err := os.ReadFile(filepath.Join(stored, goldenFile))
			if err == nil {
				err = json.Unmarshal(b, &want)
			}
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "m.etcd")
			for _, part := range []string{datadir.HistoryName, datadir.WALName} {
				if err := os.CopyFS(filepath.Join(dir, part),
					os.DirFS(filepath.Join(stored, part))); err != nil {
					t.Fatal(err)
				}
			}
			checkClean(t, dir)
			m, addr := member(t, Config{DataDir: dir})
			if got := readGolden(t, addr); !reflect.DeepEqual(got, want) {
				t.Errorf("it holds\n%+v, want\n%+v", got, want)
			}
			client := etcdserverpb.NewKVClient(dial(t, addr))
			for i := range 20 {
				key, value := fmt.Sprint("added", i), strings.Repeat("v", 500*i)
				if _, err := client.Put(timeout(t),
					&etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(value)}); err != nil {
					t.Fatal(err)
				}
			}
			more := readGolden(t, addr)
			if more.Revision != want.Revision+20 || len(more.Keys) != len(want.Keys)+20 {
				t.Errorf("%d keys at revision %d", len(more.Keys), more.Revision)
			}
			stop(t, m)
			checkClean(t, dir)
			_, addr = member(t, Config{DataDir: dir})
			if got := readGolden(t, addr); !reflect.DeepEqual(got, more) {
				t.Errorf("after a restart it holds\n%+v, want\n%+v", got, more)
			}
		})
	}
}

// checkClean runs the offline check.
func checkClean(t *testing.T, dir string) {
	t.Helper()
	ch, err := datadir.Open(datadir.Options{FS: vfs.OS(), Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for range ch.Files(t.Context()) {
	}
	if r := ch.Report(); !r.OK() {
		t.Errorf("the check says %+v", r.Damages)
	}
}

// readGolden reads all keys from a member.
func readGolden(t *testing.T, addr string) golden {
	t.Helper()
	client := etcdserverpb.NewKVClient(dial(t, addr))
	all := &etcdserverpb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
	res, err := client.Range(timeout(t), all)
	if err != nil {
		t.Fatal(err)
	}
	g := golden{Revision: res.Header.Revision, Older: map[int64]int64{}}
	for _, k := range res.Kvs {
		g.Keys = append(g.Keys,
			goldenKey{string(k.Key), string(k.Value), k.CreateRevision, k.ModRevision, k.Version})
	}
	for rev := g.Revision; rev > 0; rev-- {
		all.Revision = rev
		res, err := client.Range(timeout(t), all)
		if err != nil {
			if !strings.Contains(err.Error(), "compacted") {
				t.Fatal(err)
			}
			g.CompactRevision = rev + 1
			break
		}
		if rev < 60 && rev%5 == 0 {
			g.Older[rev] = res.Count
		}
	}
	return g
}

// storeGolden makes a data directory with segments as small as they can be and stores it.
func storeGolden(t *testing.T, dir string, killed bool) {
	t.Helper()
	mem := memfs.New()
	data, err := replica.OpenData(replica.Config{
		FS: mem, WALDir: "m/wal", HistoryDir: "m/history", Name: "default",
		ClientURLs:      []string{DefaultClientURL},
		InitialMembers:  []cluster.Member{{Name: "default", PeerURLs: []string{DefaultPeerURL}}},
		Token:           "etcd-cluster",
		WALSegmentBytes: 8 << 10, HistorySegmentBytes: 4 << 10, SnapshotCount: 20,
		SnapshotCatchUpEntries: 20,
		Logger:                 slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r, err := replica.New(data, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Start()
	<-r.Ready()
	ctx := context.Background()
	for i := range 60 {
		var err error
		switch {
		case i%9 == 4:
			_, err = r.DeleteRange(ctx,
				&kv.DeleteRangeRequest{Key: fmt.Appendf(nil, "key%d", i%12)})
		case i == 41:
			_, err = r.Compact(ctx, &kv.CompactRequest{Revision: 20, Physical: true})
		case i%10 == 7:
			_, err = r.Txn(ctx, &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("one"), Value: fmt.Append(nil, i)}},
				{Put: &kv.PutRequest{Key: []byte("two")}}}})
		default:
			_, err = r.Put(ctx, &kv.PutRequest{Key: fmt.Appendf(nil, "key%d", i%12),
				Value: []byte(strings.Repeat("x", 4*i))})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	from := mem
	if killed {
		from = mem.Kill()
		_ = r.Stop(ctx)
	} else if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{datadir.HistoryName, datadir.WALName} {
		names, err := from.List(filepath.Join("m", part))
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir, part), 0o755)
		}
		for _, n := range names {
			if err != nil {
				break
			}
			var b []byte
			if b, err = content(from, filepath.Join("m", part, n)); err == nil {
				err = os.WriteFile(filepath.Join(dir, part, n), b, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// Later members must read from it what this one reads.
	copied := filepath.Join(t.TempDir(), "m.etcd")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	m, addr := member(t, Config{DataDir: copied})
	g := readGolden(t, addr)
	stop(t, m)
	b, err := json.MarshalIndent(g, "", " ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, goldenFile), append(b, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func content(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	b := make([]byte, size)
	if err == nil {
		_, err = f.ReadAt(b, 0)
	}
	if err == io.EOF {
		err = nil
	}
	return b, errors.Join(err, f.Close())
}
