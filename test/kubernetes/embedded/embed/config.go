package embed

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.uber.org/zap"
)

// Config says how to run the server.
type Config struct {
	Name, Dir string
	// UnsafeNoFsync lets the server answer before the disk has what was written.
	UnsafeNoFsync bool

	ListenClientUrls, AdvertiseClientUrls []url.URL
	ListenPeerUrls, AdvertisePeerUrls     []url.URL
	InitialCluster                        string

	ClientTLSInfo transport.TLSInfo
	// QuotaBackendBytes is the server's quota; 0 for its default.
	QuotaBackendBytes int64
	// WatchProgressNotifyInterval is how often quiet watchers hear of progress; 0 for the server's
	// default.
	WatchProgressNotifyInterval time.Duration
	// ZapLoggerBuilder is taken and not used: what the process logs is shown if it fails.
	ZapLoggerBuilder func(*Config) error
}

// NewConfig returns a configuration of a member called default; the addresses are for the caller to
// set.
func NewConfig() *Config { return &Config{Name: "default"} }

// InitialClusterFromName returns the members of a cluster of this member alone.
func (c *Config) InitialClusterFromName(name string) string {
	var members []string
	for _, u := range c.AdvertisePeerUrls {
		members = append(members, name+"="+u.String())
	}
	return strings.Join(members, ",")
}

// NewZapLoggerBuilder returns what Config.ZapLoggerBuilder takes.
func NewZapLoggerBuilder(*zap.Logger) func(*Config) error {
	return func(*Config) error { return nil }
}

// commandLine returns the command line without the program.
func (c *Config) commandLine() []string {
	args := []string{
		"--name=" + c.Name,
		"--data-dir=" + c.Dir,
		"--listen-client-urls=" + join(c.ListenClientUrls),
		"--advertise-client-urls=" + join(c.AdvertiseClientUrls),
		"--listen-peer-urls=" + join(c.ListenPeerUrls),
		"--initial-advertise-peer-urls=" + join(c.AdvertisePeerUrls),
		"--initial-cluster=" + c.InitialCluster,
	}
	if c.UnsafeNoFsync {
		args = append(args, "--unsafe-no-fsync")
	}
	if c.QuotaBackendBytes != 0 {
		args = append(args, "--quota-backend-bytes="+strconv.FormatInt(c.QuotaBackendBytes, 10))
	}
	if c.WatchProgressNotifyInterval > 0 {
		args = append(args, "--watch-progress-notify-interval="+
			c.WatchProgressNotifyInterval.String())
	}
	for _, file := range []struct{ flag, name string }{
		{"--cert-file", c.ClientTLSInfo.CertFile},
		{"--key-file", c.ClientTLSInfo.KeyFile},
		{"--trusted-ca-file", c.ClientTLSInfo.TrustedCAFile},
	} {
		if file.name != "" {
			args = append(args, file.flag+"="+file.name)
		}
	}
	return args
}

func join(urls []url.URL) string {
	var s []string
	for _, u := range urls {
		s = append(s, u.String())
	}
	return strings.Join(s, ",")
}
