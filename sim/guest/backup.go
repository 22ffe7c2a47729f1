//go:build wasip1

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"vigil/client"
	"vigil/internal/offline/restore"
	"vigil/server"
	"vigil/sim/guest/sys"
	"vigil/sim/scenario/setup"
)

// backUp makes backups of members, and starts the member of a new cluster from each: it must have
// the hash that the others have at its revision.
func backUp(c *setup.Client, rng *rand.Rand, all *client.Client) error {
	first := false // a key is older than most compactions
	for n := 1; goesOn(c, c.Stop); n++ {
		if !first {
			ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
			_, err := all.Put(ctx, "backup/first", nil)
			cancel()
			first = err == nil
		}
		time.Sleep(time.Duration(rng.Int64N(min(8*c.Think, int64(30*time.Second)))))
		at, err := all.At(c.Endpoints[rng.IntN(len(c.Endpoints))])
		if err != nil {
			return err
		}
		name := fmt.Sprintf("/backup-%d", n)
		if fetch(at, name) != nil {
			continue // the member failed, or is none
		}
		rev, err := restored(c, name)
		if err != nil {
			return fmt.Errorf("a backup of %s: %w", at.Endpoints()[0], err)
		}
		for _, e := range c.Endpoints {
			if at, err := all.At(e); err == nil {
				reportHash(at, e, rev)
			}
		}
	}
	return nil
}

// fetch writes a backup to a file.
func fetch(at *client.Client, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := at.Maintenance().Snapshot(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	data, err := io.ReadAll(s)
	if err != nil {
		return err
	}
	f, err := sys.Disk{}.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt(data, 0)
	return err
}

// restored restores a backup as the only member of a cluster, and reports its hash at its revision.
func restored(c *setup.Client, name string) (rev int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	clientURL, peerURL, dir := "http://"+c.Address+":2379", "http://"+c.Address+":2380",
		name+".restored"
	initial := "copy=" + peerURL
	members, err := restore.ParseMembers(initial)
	if err != nil {
		return 0, err
	}
	sum, err := restore.Run(ctx,
		restore.Options{FS: sys.Disk{}, Source: name, DataDir: dir, Name: "copy", Members: members})
	if err != nil {
		return 0, err
	}
	m, err := server.Start(server.Config{Name: "copy", DataDir: dir,
		ListenClientURLs: []string{clientURL}, AdvertiseClientURLs: []string{clientURL},
		ListenPeerURLs: []string{peerURL}, InitialAdvertisePeerURLs: []string{peerURL},
		InitialCluster: initial,
		Logger:         newLog(), FS: sys.Disk{}, Network: sys.Network{}})
	if err != nil {
		return 0, err
	}
	defer m.Close(ctx)
	cl, err := connect(c.Address + ":2379")
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	for {
		if reportHash(cl, "a backup", sum.Revision) {
			return sum.Revision, nil
		}
		select {
		case err := <-m.Failed():
			return 0, err
		case <-ctx.Done():
			return 0, fmt.Errorf("it does not serve")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
