//go:build wasip1

package main

import (
	"errors"
	"runtime"
	"time"

	"vigil/server"
	"vigil/sim/guest/sys"
	"vigil/sim/scenario/setup"
)

// runMember runs a member until it fails, or is requested to stop. The simulation kills it.
func runMember(c setup.Member) error {
	stop, err := stopRequest(c.StopAddress)
	if err != nil {
		return err
	}
	before := runtime.NumGoroutine() - 1 // the one that waits for the request
	m, err := server.Start(server.Config{
		Name: c.Name, DataDir: "/data",
		ListenClientURLs: []string{c.ClientURL}, AdvertiseClientURLs: []string{c.ClientURL},
		ListenPeerURLs: c.ListenPeerURLs, InitialAdvertisePeerURLs: []string{c.PeerURL},
		InitialCluster: c.InitialCluster, InitialClusterState: c.InitialClusterState,
		SnapshotCount: c.SnapshotCount, SnapshotCatchUpEntries: c.SnapshotCatchUpEntries,
		HeartbeatInterval:     time.Duration(c.HeartbeatInterval),
		ElectionTimeout:       time.Duration(c.ElectionTimeout),
		WatchProgressInterval: time.Duration(c.ProgressInterval), QuotaBackendBytes: c.QuotaBytes,
		LaxReconfig: c.LaxReconfig, ForceNewCluster: c.ForceNewCluster,
		ScrubPause:               time.Duration(c.ScrubPause),
		CorruptCheckInterval:     time.Duration(c.CorruptCheckInterval),
		CompactHashCheckInterval: time.Duration(c.CorruptCheckInterval),
		Auth:                     server.Auth{BcryptCost: 4}, // the least
		MaxRequestBytes:          setup.MaxRequestBytes,
		WALSegmentBytes:          c.SegmentBytes, HistorySegmentBytes: c.HistoryBytes,
		Logger: newLog(), FS: sys.Disk{}, Network: sys.Network{},
	})
	if err == nil {
		select {
		case err = <-m.Failed():
		case <-stop:
			stopMember(m, c.Name, before)
			return nil
		}
	}
	if errors.Is(err, server.ErrRemoved) {
		return nil
	}
	return err
}
