package server

import (
	"path/filepath"

	"vigil/internal/edge/rpc"
	"vigil/internal/member/archiver"
	"vigil/internal/member/replica"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/watch"
	"vigil/internal/vfs"
)

// replicaConfig converts the configuration of the member to the one of its pipeline.
func (m *Member) replicaConfig() replica.Config {
	c := &m.cfg
	var hold replica.LogHold
	if c.Archive.URL != "" {
		m.archive.hold = archiver.NewHold(c.Archive.MaxLagBytes)
		hold = m.archive.hold
	}
	lock, _ := m.lock.(vfs.Keeper)
	return replica.Config{
		FS:                           c.FS,
		Lock:                         lock,
		WALDir:                       c.WALDir,
		HistoryDir:                   filepath.Join(c.DataDir, "history"),
		Name:                         c.Name,
		ClientURLs:                   c.AdvertiseClientURLs,
		Token:                        c.InitialClusterToken,
		TickInterval:                 c.HeartbeatInterval,
		ElectionTicks:                int(c.ElectionTimeout / c.HeartbeatInterval),
		NoPreVote:                    c.NoPreVote,
		NoInitialElectionTickAdvance: c.NoInitialElectionTickAdvance,
		MaxRequestBytes:              c.MaxRequestBytes,
		WarnApplyDuration:            c.WarnApplyDuration,
		Tracer:                       m.spans(),
		NoteSteps:                    max(c.WarnUnaryDuration/2, 1),
		SnapshotCount:                c.SnapshotCount,
		SnapshotCatchUpEntries:       c.SnapshotCatchUpEntries,
		MaxCatchUpBytes:              c.MaxCatchUpBytes,
		QuotaBytes:                   max(c.QuotaBackendBytes, 0),
		Store:                        mvcc.Options{Ranges: m.ranges},
		Watch: watch.Options{ProgressInterval: c.WatchProgressInterval,
			FragmentBytes:  int64(rpc.MaxMessageBytes(c.MaxRequestBytes)),
			StreamWatchers: c.MaxWatchersPerStream},
		Hold:            hold,
		ForceNewCluster: c.ForceNewCluster,
		LaxReconfig:     c.LaxReconfig,
		MaxLearners:     c.MaxLearners,
		TokenTTL:        c.Auth.TokenTTL,
		BcryptCost:      c.Auth.bcryptCost(m.log),

		Logger: c.Logger,
		NoSync: c.UnsafeNoSync,

		CorruptCheckInterval:     c.CorruptCheckInterval,
		CompactHashCheckInterval: c.CompactHashCheckInterval,
		NoInitialCorruptCheck:    c.NoInitialCorruptCheck,

		ScrubBytesPerSecond: max(c.ScrubBytesPerSecond, 0),
		ScrubPause:          c.ScrubPause,

		WALSegmentBytes: c.WALSegmentBytes, HistorySegmentBytes: c.HistorySegmentBytes,
	}
}

// maxQuota is the largest quota that etcd suggests. The log line is etcd's.
const maxQuota = 8 << 30

func (m *Member) logQuota() {
	switch quota := m.cfg.QuotaBackendBytes; {
	case quota < 0:
		m.log.Info("disabled backend quota", "quota-size-bytes", quota)
	default:
		if quota > maxQuota {
			m.log.Warn("quota exceeds the maximum value", "quota-size-bytes", quota,
				"quota-maximum-size-bytes", int64(maxQuota))
		}
		m.log.Info("enabled backend quota", "quota-size-bytes", quota)
	}
}
