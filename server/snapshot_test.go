package server

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigil/internal/kv"
)

// Whole members on loopback: one is stopped, the others write more than their raft logs keep, and
// it is brought up by a snapshot when it starts again.
func TestStoppedMemberIsBroughtUpBySnapshot(t *testing.T) {
	dir := t.TempDir()
	var urls, cluster []string
	for i := range 3 {
		urls = append(urls, vacantURL(t))
		cluster = append(cluster, fmt.Sprintf("m%d=%s", i, urls[i]))
	}
	begin := func(i int) *Member {
		m, err := Start(Config{
			Name: fmt.Sprintf("m%d", i), DataDir: filepath.Join(dir, fmt.Sprintf("m%d.etcd", i)),
			ListenClientURLs:    []string{"http://127.0.0.1:0"},
			AdvertiseClientURLs: []string{DefaultClientURL},
			ListenPeerURLs:      []string{urls[i]}, InitialAdvertisePeerURLs: []string{urls[i]},
			InitialCluster: strings.Join(cluster, ","),
			SnapshotCount:  100, SnapshotCatchUpEntries: 10, UnsafeNoSync: true,
			Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	members := []*Member{begin(0), begin(1), begin(2)}
	for _, m := range members {
		<-m.replica.Ready()
	}
	defer func() {
		for _, m := range members {
			stop(t, m)
		}
	}()
	put := func(i int) int64 {
		for end := time.Now().Add(time.Minute); ; {
			res, err := members[0].replica.Put(t.Context(),
				&kv.PutRequest{Key: fmt.Appendf(nil, "k%d", i%50), Value: make([]byte, 500)})
			if err == nil {
				return res.Revision
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	for i := range 200 {
		put(i)
	}
	stop(t, members[2])
	rev := int64(0)
	for i := range 1000 {
		rev = put(i)
	}
	members[2] = begin(2)
	<-members[2].replica.Ready()
	for end := time.Now().Add(time.Minute); members[2].replica.Status().Revision < rev ||
		members[2].replica.Metrics().Received.Installed == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("at revision %d, want %d; %+v", members[2].replica.Status().Revision, rev,
				members[2].replica.Metrics().Received)
		}
	}
	want, err := members[0].replica.HashKV(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := members[2].replica.HashKV(t.Context(), rev); err != nil ||
		got.Hash != want.Hash {
		t.Errorf("hash %+v, %v, want %+v", got, err, want)
	}
}
