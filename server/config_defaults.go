package server

import (
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vigil/internal/store/ration"
	"vigil/internal/vfs"
)

// WithDefaults returns c with every field that is zero set to its default.
func (c Config) WithDefaults() Config {
	def(&c.Name, "default")
	def(&c.DataDir, c.Name+".etcd")
	def(&c.WALDir, filepath.Join(c.DataDir, "wal"))
	if len(c.ListenClientURLs) == 0 {
		c.ListenClientURLs = []string{DefaultClientURL}
	}
	if len(c.AdvertiseClientURLs) == 0 {
		c.AdvertiseClientURLs = slices.Clone(c.ListenClientURLs)
	}
	if len(c.ListenPeerURLs) == 0 {
		c.ListenPeerURLs = []string{DefaultPeerURL}
	}
	if len(c.InitialAdvertisePeerURLs) == 0 {
		c.InitialAdvertisePeerURLs = []string{DefaultPeerURL}
	}
	c.Discovery = c.Discovery.WithDefaults()
	if c.Discovery.Registry() {
		c.InitialClusterToken = c.Discovery.Token
	}
	if c.Discovery.SRV != "" && c.PeerTLS.TrustedCAFile == "" {
		// As etcd has it: without an authority of its own, a domain vouches for its members.
		def(&c.PeerTLS.ServerName, c.Discovery.SRV)
	}
	if c.InitialCluster == "" && !c.Discovery.Wanted() {
		parts := make([]string, len(c.InitialAdvertisePeerURLs))
		for i, u := range c.InitialAdvertisePeerURLs {
			parts[i] = c.Name + "=" + u
		}
		c.InitialCluster = strings.Join(parts, ",")
	}
	def(&c.InitialClusterState, "new")
	def(&c.InitialClusterToken, "etcd-cluster")
	def(&c.HeartbeatInterval, 100*time.Millisecond)
	def(&c.ElectionTimeout, 1000*time.Millisecond)
	def(&c.SnapshotCount, 10_000)
	def(&c.SnapshotCatchUpEntries, 5_000)
	def(&c.QuotaBackendBytes, 2<<30)
	def(&c.ScrubBytesPerSecond, 8<<20)
	def(&c.ScrubPause, time.Hour)
	def(&c.CorruptCheckInterval, 10*time.Minute)
	def(&c.CompactHashCheckInterval, time.Minute)
	def(&c.MaxTxnOps, 128)
	def(&c.MaxLearners, 1)
	def(&c.TLSMinVersion, "TLS1.2")
	def(&c.SelfSignedValidity, year)
	if len(c.CORS) == 0 {
		c.CORS = []string{"*"}
	}
	if len(c.HostWhitelist) == 0 {
		c.HostWhitelist = []string{"*"}
	}
	c.Auth = c.Auth.withDefaults()
	def(&c.AutoCompactionMode, "periodic")
	def(&c.AutoCompactionRetention, "0")
	def(&c.WarnApplyDuration, 100*time.Millisecond)
	def(&c.WarnUnaryDuration, 300*time.Millisecond)
	c.Tracing = c.Tracing.withDefaults()
	def(&c.MaxRequestBytes, 3<<19)
	def(&c.MaxRangeBytesInFlight, ration.DefaultLimit)
	def(&c.MaxConcurrentStreams, math.MaxUint32)
	def(&c.KeepAliveMinTime, 5*time.Second)
	def(&c.KeepAliveInterval, 2*time.Hour)
	def(&c.KeepAliveTimeout, 20*time.Second)
	def(&c.WatchProgressInterval, 10*time.Minute)
	def(&c.MaxWatchersPerStream, 1_000_000)
	if c.NoCompactHashCheck {
		c.CompactHashCheckInterval = -1
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	return c
}

// year is the unit of the validity of certificates.
const year = 365 * 24 * time.Hour

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
