package server

import (
	"vigil/internal/edge/certs"
	"vigil/internal/edge/rpc"
	"vigil/internal/member/peer"
	"vigil/internal/portmux"
	"vigil/server/metrics"
)

// openServices makes the services of gRPC and HTTP, and the metrics. None of them is served yet.
func (m *Member) openServices() error {
	view := &memberView{m: m, replica: m.replica, cfg: &m.cfg}
	hashes := newHasher(m.replica)
	rpcMetrics := rpc.NewMetrics(m.cfg.ExtensiveMetrics)
	var err error
	m.rpc, err = rpc.NewServer(rpc.Config{
		KV:                   m.replica,
		Member:               view,
		Cluster:              view,
		Hasher:               hashes,
		Snapshots:            view,
		Alarms:               m.replica.Alarms,
		Versions:             m.replica.API,
		Leases:               m.replica.Leases,
		Times:                m.replica.Times,
		Auth:                 m.replica.Access,
		WatchHub:             m.replica.Hub(),
		CertificateUsers:     m.cfg.ClientTLS.ClientCertAuth,
		NewWatchStream:       m.newWatchStream,
		Ranges:               m.ranges,
		Logger:               m.log,
		Metrics:              rpcMetrics,
		MaxRequestBytes:      m.cfg.MaxRequestBytes,
		MaxTxnOps:            m.cfg.MaxTxnOps,
		MaxConcurrentStreams: m.cfg.MaxConcurrentStreams,
		ElectionTimeout:      m.cfg.ElectionTimeout,
		Ticking:              m.replica.Ticking,
		KeepAliveMinTime:     m.cfg.KeepAliveMinTime,
		KeepAliveInterval:    m.cfg.KeepAliveInterval,
		KeepAliveTimeout:     m.cfg.KeepAliveTimeout,
		WarnUnaryDuration:    m.cfg.WarnUnaryDuration,
		Stats:                m.callStats(),
		CallMade:             portmux.CallMade,
		HTTP:                 m.httpBesideGRPC(),
	})
	if err != nil {
		return err
	}
	registry, err := metrics.NewRegistry(metrics.Sources{Replica: m.replica, Ranges: m.ranges,
		QuotaBytes: m.cfg.QuotaBackendBytes, Features: m.cfg.features(),
		Archiver: m.archiverWithBucket(),
		Certificates: []metrics.Certificates{{Kind: certs.Clients, Store: m.clientTLS},
			{Kind: certs.Peers, Store: m.peerTLS}}},
		rpcMetrics, hashes, peer.NewCollector(m.transport), m.promotions.ok, m.promotions.failed)
	if err != nil {
		return err
	}
	return m.openWeb(view, registry)
}

// features returns the feature gates that the configuration switches on.
func (c *Config) features() metrics.Features {
	return metrics.Features{CompactHashCheck: c.CompactHashCheckInterval > 0,
		InitialCorruptCheck: !c.NoInitialCorruptCheck,
		SetMemberLocalAddr:  c.SetMemberLocalAddr}
}
