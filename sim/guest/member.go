//go:build wasip1

package main

import (
	"errors"
	"fmt"
	"time"

	"vigil/server"
	"vigil/sim/guest/sys"
	"vigil/sim/scenario/setup"
)

// runMember runs a member until it fails. The simulation kills it.
func runMember(c setup.Member) error {
	m, err := server.Start(server.Config{
		Name: c.Name, DataDir: "/data",
		ListenClientURLs: []string{c.ClientURL}, AdvertiseClientURLs: []string{c.ClientURL},
		ListenPeerURLs: c.ListenPeerURLs, InitialAdvertisePeerURLs: []string{c.PeerURL},
		InitialCluster: c.InitialCluster, InitialClusterState: c.InitialClusterState,
		SnapshotCount: c.SnapshotCount, SnapshotCatchUpEntries: c.CatchUpEntries,
		WatchProgressInterval: time.Duration(c.ProgressInterval), QuotaBackendBytes: c.QuotaBytes, LaxReconfig: c.LaxReconfig,
		Logger: newLog(), FS: sys.Disk{}, Network: sys.Network{},
	})
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	err = <-m.Failed()
	if errors.Is(err, server.ErrRemoved) {
		return nil
	}
	return fmt.Errorf("failed: %w", err)
}
