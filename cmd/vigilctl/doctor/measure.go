package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math"
	"os"
	"time"

	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/survey"
	"vigil/internal/health"
)

// queryMembers reads all that the checks need.
func queryMembers(ctx context.Context, l *survey.Survey, e *health.Examination) {
	n := len(l.Members)
	e.Round, e.Clocks, e.Flags = l.Read(ctx), make([]*health.Clock, n), make([]map[string]string, n)
	e.Expiries, e.CertErrs = make([]time.Time, n), make([]error, n)
	e.Now = e.At
	e.Data = compareData(ctx, l, e.Round)
	l.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		if c, err := m.Clock(ctx); err == nil {
			e.Clocks[i] = &c
		}
		e.Expiries[i], e.CertErrs[i] = m.CertificateExpiry(ctx)
		state, _ := m.State(ctx) // nil says enough
		e.Flags[i], e.Readings[i].Failures, e.Readings[i].Recent = state.Settings, state.Failures, state.Recent
	})
	if e.Omit["disk"] == "" || e.Omit["network"] == "" {
		lookAgain(ctx, l, e)
	}
	for _, name := range []string{l.Env.Config.TLSFiles.Cert, l.Env.Config.TLSFiles.CA} {
		if name != "" {
			end, err := firstExpiry(name)
			e.Files = append(e.Files, health.File{Name: name, End: end, Err: err})
		}
	}
	e.ListErr = reduce(e.ListErr)
	for i := range e.Readings {
		e.Readings[i].StatusErr, e.Readings[i].MetricsErr = reduce(e.Readings[i].StatusErr), reduce(e.Readings[i].MetricsErr)
		e.CertErrs[i], e.Data[i].Err = reduce(e.CertErrs[i]), reduce(e.Data[i].Err)
	}
}

// secondLook is how long after the first one members are looked at again that do not tell what they counted lately.
const secondLook = 2 * time.Second

// lookAgain reads the metrics of members once more that do not tell what they counted lately, as those of etcd.
func lookAgain(ctx context.Context, l *survey.Survey, e *health.Examination) {
	l.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		x := &e.Readings[i]
		if x.Metrics == nil || len(x.Recent) > 0 {
			return
		}
		select {
		case <-time.After(time.Until(x.At.Add(secondLook))):
		case <-ctx.Done():
			return
		}
		if now, err := m.Metrics(ctx); err == nil {
			w := health.Between(x.Metrics, now, time.Since(x.At))
			w.Watched = true
			x.Recent = []health.Window{w}
		}
	})
}

// reduced is an error with the text of its first cause.
type reduced struct{ error }

// Error implements error.
func (r reduced) Error() string { return survey.ErrorLine(r.error) }

// Unwrap returns the whole error.
func (r reduced) Unwrap() error { return r.error }

func reduce(err error) error {
	if err == nil {
		return nil
	}
	return reduced{err}
}

// compareData reads the hashes of members at the newest revision that all of them have.
func compareData(ctx context.Context, l *survey.Survey, r *health.Round) []health.Compared {
	out := make([]health.Compared, len(l.Members))
	revision, answered := int64(math.MaxInt64), 0
	for i := range r.Readings {
		if h := r.Readings[i].Status.GetHeader(); h != nil {
			revision = min(revision, h.Revision)
			answered++
		}
	}
	if answered < 2 {
		return out
	}
	l.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		if r.Readings[i].Status == nil {
			return
		}
		at, err := l.Client.At(m.Endpoint)
		if err != nil {
			out[i].Err = err
			return
		}
		if out[i].Later, err = at.Status(ctx); err == nil {
			out[i].Hash, err = at.HashKV(ctx, revision)
		}
		out[i].Err = err
	})
	return out
}

// firstExpiry returns when the first of the certificates in a file expires.
func firstExpiry(name string) (end time.Time, err error) {
	rest, err := os.ReadFile(name)
	for err == nil {
		var b *pem.Block
		if b, rest = pem.Decode(rest); b == nil {
			break
		}
		if b.Type != "CERTIFICATE" {
			continue
		}
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(b.Bytes); err == nil && (end.IsZero() || c.NotAfter.Before(end)) {
			end = c.NotAfter
		}
	}
	if err == nil && end.IsZero() {
		err = fmt.Errorf("%s: no certificate", name)
	}
	return end, err
}
