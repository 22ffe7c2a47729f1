package server

import (
	"cmp"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vigil/internal/edge/certs"
	"vigil/internal/edge/console"
	"vigil/internal/edge/httpd"
	"vigil/internal/edge/rpc"
	"vigil/internal/member/compactor"
	"vigil/internal/member/replica"
	"vigil/internal/state/auth/password"
	"vigil/internal/state/auth/token"
	"vigil/internal/store/ration"
	"vigil/internal/store/watch"
	"vigil/internal/vfs"
)

// WithDefaults returns c with every zero field set to its default. The default of a setting is in
// the package that uses it; only settings of this package have their default here.
func (c Config) WithDefaults() Config {
	c.setMemberDefaults()
	c.setReplicaDefaults()
	c.setServiceDefaults()
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	return c
}

// setMemberDefaults sets the defaults of this package's settings: the name, the directories and the
// URLs.
func (c *Config) setMemberDefaults() {
	or(&c.Name, defaultName)
	or(&c.DataDir, c.Name+".etcd")
	or(&c.WALDir, filepath.Join(c.DataDir, "wal"))
	orList(&c.ListenClientURLs, DefaultClientURL)
	orList(&c.AdvertiseClientURLs, c.ListenClientURLs...)
	orList(&c.ListenPeerURLs, DefaultPeerURL)
	orList(&c.InitialAdvertisePeerURLs, DefaultPeerURL)
	c.Discovery = c.Discovery.WithDefaults()
	if c.Discovery.Registry() {
		c.InitialClusterToken = c.Discovery.Token
	}
	if c.Discovery.SRV != "" && c.PeerTLS.TrustedCAFile == "" {
		// As in etcd: without a configured authority, the domain identifies the members.
		or(&c.PeerTLS.ServerName, c.Discovery.SRV)
	}
	if c.InitialCluster == "" && !c.Discovery.Wanted() {
		parts := make([]string, len(c.InitialAdvertisePeerURLs))
		for i, u := range c.InitialAdvertisePeerURLs {
			parts[i] = c.Name + "=" + u
		}
		c.InitialCluster = strings.Join(parts, ",")
	}
	or(&c.InitialClusterState, "new")
	or(&c.InitialClusterToken, "etcd-cluster")
}

// minProgressInterval is the shortest WatchProgressInterval, since each notification is a message
// to every idle watcher. Shorter values count as this one.
const minProgressInterval = 100 * time.Millisecond

// setReplicaDefaults sets the defaults of the replica's settings.
func (c *Config) setReplicaDefaults() {
	r := replica.Config{}.WithDefaults()
	or(&c.HeartbeatInterval, r.TickInterval)
	or(&c.ElectionTimeout, time.Duration(r.ElectionTicks)*r.TickInterval)
	or(&c.SnapshotCount, r.SnapshotCount)
	or(&c.SnapshotCatchUpEntries, r.SnapshotCatchUpEntries)
	or(&c.QuotaBackendBytes, replica.DefaultQuotaBytes)
	or(&c.ScrubBytesPerSecond, replica.DefaultScrubBytesPerSecond)
	or(&c.ScrubPause, r.ScrubPause)
	or(&c.CorruptCheckInterval, r.CorruptCheckInterval)
	or(&c.CompactHashCheckInterval, r.CompactHashCheckInterval)
	if c.NoCompactHashCheck {
		c.CompactHashCheckInterval = -1
	}
	or(&c.MaxLearners, r.MaxLearners)
	c.Archive.setDefaults()
	or(&c.WarnApplyDuration, r.WarnApplyDuration)
	or(&c.Auth.Token, token.DefaultKind)
	or(&c.Auth.TokenTTL, token.DefaultTTL)
	or(&c.Auth.BcryptCost, password.DefaultCost)
	or(&c.MaxRangeBytesInFlight, ration.DefaultLimit)
	w := watch.Options{}.EnsureDefaults()
	or(&c.WatchProgressInterval, w.ProgressInterval)
	c.WatchProgressInterval = max(c.WatchProgressInterval, minProgressInterval)
	or(&c.MaxWatchersPerStream, w.StreamWatchers)
	or(&c.AutoCompactionMode, string(compactor.DefaultMode))
	or(&c.AutoCompactionRetention, compactor.DefaultRetention)
}

// setServiceDefaults sets the defaults of the settings for services and connections.
func (c *Config) setServiceDefaults() {
	r := rpc.Config{}.WithDefaults()
	or(&c.MaxTxnOps, r.MaxTxnOps)
	or(&c.MaxRequestBytes, r.MaxRequestBytes)
	or(&c.MaxConcurrentStreams, r.MaxConcurrentStreams)
	or(&c.WarnUnaryDuration, r.WarnUnaryDuration)
	or(&c.KeepAliveMinTime, r.KeepAliveMinTime)
	or(&c.KeepAliveInterval, r.KeepAliveInterval)
	or(&c.KeepAliveTimeout, r.KeepAliveTimeout)
	or(&c.TLSMinVersion, certs.DefaultMinVersion)
	or(&c.SelfSignedValidity, certs.DefaultSelfSignedValidity)
	or(&c.Console, console.Auto)
	orList(&c.CORS, httpd.Any)
	orList(&c.HostWhitelist, httpd.Any)
	c.Tracing.Config = c.Tracing.Config.WithDefaults()
}

// or sets a zero field.
func or[T comparable](field *T, value T) {
	*field = cmp.Or(*field, value)
}

func orList(field *[]string, values ...string) {
	if len(*field) == 0 {
		*field = slices.Clone(values)
	}
}
