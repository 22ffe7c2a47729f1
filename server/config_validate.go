package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"vigil/internal/edge/console"
	"vigil/internal/edge/listen"
	"vigil/internal/member/compactor"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/ration"
)

// maxTxnOps is the largest value of Config.MaxTxnOps.
const maxTxnOps = 1 << 20

// ConfigError is a mistake in the configuration or in a file that it names: a restart without a
// correction fails too.
type ConfigError struct{ Err error }

// Error implements error.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap returns the mistake.
func (e *ConfigError) Unwrap() error { return e.Err }

// configError wraps an error other than nil.
func configError(err error) error {
	if err == nil {
		return nil
	}
	return &ConfigError{err}
}

// Validate reports all mistakes under the names of their flags. Call WithDefaults first.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	for _, l := range []struct {
		flag  string
		urls  []string
		certs *TLS
		names string
	}{
		{"listen-client-urls", c.ListenClientURLs, &c.ClientTLS, ""},
		{"listen-client-http-urls", c.ListenClientHTTPURLs, &c.ClientTLS, ""},
		{"listen-metrics-urls", c.ListenMetricsURLs, &c.ClientTLS, ""},
		{"listen-peer-urls", c.ListenPeerURLs, &c.PeerTLS, "peer-"},
	} {
		for _, s := range l.urls {
			_, _, secure, err := listen.Address(s)
			switch {
			case err != nil:
				bad("--%s: %w", l.flag, err)
			case secure && !l.certs.Serves():
				bad("--%s: %q needs --%[3]scert-file and --%[3]skey-file, or --%[3]sauto-tls",
					l.flag, s, l.names)
			}
		}
	}
	for _, s := range c.ListenPeerURLs {
		// port 0 is a free one for each
		if slices.Contains(c.ListenClientURLs, s) && !strings.HasSuffix(s, ":0") {
			bad("--listen-peer-urls: %q is also one of --listen-client-urls", s)
		}
	}
	for _, s := range c.AdvertiseClientURLs {
		// By default they are the listen URLs, whose mistakes are reported above.
		if err := listen.CheckURL(s); err != nil && !slices.Contains(c.ListenClientURLs, s) {
			bad("--advertise-client-urls: %w", err)
		}
	}
	for _, s := range c.InitialAdvertisePeerURLs {
		if err := listen.CheckURL(s); err != nil {
			bad("--initial-advertise-peer-urls: %w", err)
		}
	}
	if !utf8.ValidString(c.Name) {
		bad("--name: %q is not UTF-8, so other members and clients could not read it", c.Name)
	}
	if c.InitialCluster != "" || !c.Discovery.Wanted() {
		if _, err := c.initialMembers(); err != nil {
			bad("--initial-cluster: %w", err)
		}
	}
	errs = append(errs, c.validateTLS(), c.validateDiscovery(), c.Auth.validate(),
		c.Tracing.validate(), c.Archive.validate())
	if _, err := compactor.Parse(c.AutoCompactionMode, c.AutoCompactionRetention); err != nil {
		bad("--auto-compaction-mode, --auto-compaction-retention: %w", err)
	}
	if c.ForceNewCluster && c.InitialClusterState == "existing" {
		bad("--force-new-cluster: not allowed with --initial-cluster-state=existing: it uses " +
			"existing data")
	}
	if c.InitialClusterState != "new" && c.InitialClusterState != "existing" {
		bad(`--initial-cluster-state: %q is neither "new" nor "existing"`, c.InitialClusterState)
	}
	if c.HeartbeatInterval < time.Millisecond {
		bad("--heartbeat-interval: %v is less than 1 ms", c.HeartbeatInterval)
	}
	if c.ElectionTimeout < 5*c.HeartbeatInterval {
		bad("--election-timeout: %v must be at least 5 times --heartbeat-interval (%v)",
			c.ElectionTimeout, c.HeartbeatInterval)
	}
	if c.ElectionTimeout > 50*time.Second {
		bad("--election-timeout: %v is more than 50 s", c.ElectionTimeout)
	}
	if c.MaxTxnOps < 1 || c.MaxTxnOps > maxTxnOps {
		bad("--max-txn-ops: %d is outside 1 to %d", c.MaxTxnOps, maxTxnOps)
	}
	if c.MaxRequestBytes < 1 || c.MaxRequestBytes > fsm.MaxRequestBytes {
		bad("--max-request-bytes: %d is outside 1 to %d, the limit of a record of the store",
			c.MaxRequestBytes, fsm.MaxRequestBytes)
	}
	if err := cluster.CheckClientURLs(c.AdvertiseClientURLs); err != nil {
		bad("--advertise-client-urls: %v", err)
	}
	if c.MaxRangeBytesInFlight < ration.MinLimit {
		bad("--max-range-bytes-in-flight: %d is less than %d", c.MaxRangeBytesInFlight,
			ration.MinLimit)
	}
	if c.Console != console.Auto && c.Console != console.On && c.Console != console.Off {
		bad("--console: %q is none of auto, on, off", c.Console)
	}
	if c.MaxWatchersPerStream < 1 {
		bad("--max-watchers-per-stream: %d is below 1", c.MaxWatchersPerStream)
	}
	if c.ScrubPause < 0 {
		bad("--scrub-pause: %v is negative", c.ScrubPause)
	}
	return errors.Join(errs...)
}
