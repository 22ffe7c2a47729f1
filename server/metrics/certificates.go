package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"vigil/internal/edge/certs"
)

// Certificates are the certificates of one kind of connections.
type Certificates struct {
	Kind  certs.Kind
	Store *certs.Store
}

var certificateExpiry = newDesc("vigil_certificate_expiry_timestamp_seconds",
	"When the certificate in use expires, in seconds since 1970: by the listener, and by what "+
		"the certificate is for.", "listener", "use")

// certificateCollector exports the expiry of certificates. A scrape looks for changed files, as a
// connection does.
type certificateCollector []Certificates

// Describe implements prometheus.Collector.
func (c certificateCollector) Describe(ch chan<- *prometheus.Desc) { ch <- certificateExpiry }

// Collect implements prometheus.Collector.
func (c certificateCollector) Collect(ch chan<- prometheus.Metric) {
	for _, k := range c {
		for _, e := range k.Store.Expiries() {
			ch <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue,
				float64(e.End.Unix()), k.Kind.String(), e.Use)
		}
	}
}
