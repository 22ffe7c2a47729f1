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

// queryMembers takes all measurements that the checks need.
func queryMembers(ctx context.Context, l *survey.Survey, e *health.Examination) {
	n := len(l.Members)
	e.Round, e.Clocks, e.Flags = l.Read(ctx), make([]*health.Clock, n), make([]map[string]string, n)
	e.Expiries, e.CertErrs, e.Subjects = make([]time.Time, n), make([]error, n), make([]string, n)
	e.Now = e.At
	e.Data = compareData(ctx, l, e.Round)
	l.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		if c, err := m.Clock(ctx); err == nil && e.Readings[i].PagesOf == 0 {
			e.Clocks[i] = &c
		}
		shown, err := m.Certificate(ctx)
		if e.CertErrs[i] = err; shown != nil {
			e.Expiries[i], e.Subjects[i] = shown.NotAfter, shown.Subject.String()
		}
		state, _ := m.State(ctx) // nil means unknown
		if id := e.Readings[i].ID(); state.Member != 0 && id != 0 && state.Member != id {
			return // a load balancer is in front of the members
		}
		e.Flags[i], e.Readings[i].Failures = state.Settings, state.Failures
		e.Readings[i].Recent, e.Readings[i].Certificates = state.Recent, state.Certificates
	})
	if e.Omit["disk"] == "" || e.Omit["network"] == "" {
		lookAgain(ctx, l, e)
	}
	for _, f := range []struct {
		use, flag, name string
		decides         func(a, b *x509.Certificate) bool // which of two certificates in the file
	}{
		{"this program's certificate", "--cert", l.Env.Config.TLSFiles.Cert,
			func(a, b *x509.Certificate) bool { return a.NotAfter.Before(b.NotAfter) }},
		// An expired authority next to its successor does no harm.
		{"the authority of members that this program trusts", "--cacert", l.Env.Config.TLSFiles.CA,
			func(a, b *x509.Certificate) bool { return a.NotAfter.After(b.NotAfter) }},
	} {
		if f.name != "" {
			c, err := decidingCertificate(f.name, f.decides)
			file := health.File{Use: f.use, From: f.flag + " " + f.name, Err: err}
			if err == nil {
				file.Subject, file.End = c.Subject.String(), c.NotAfter
			}
			e.Files = append(e.Files, file)
		}
	}
	e.ListErr = reduce(e.ListErr)
	for i := range e.Readings {
		e.Readings[i].StatusErr, e.Readings[i].MetricsErr = reduce(e.Readings[i].StatusErr),
			reduce(e.Readings[i].MetricsErr)
		e.CertErrs[i], e.Data[i].Err = reduce(e.CertErrs[i]), reduce(e.Data[i].Err)
	}
}

// secondLook is the pause between two looks at members that do not report recent counts.
const secondLook = 2 * time.Second

// lookAgain reads the metrics a second time from members that do not report recent counts, such as
// etcd's.
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

// reduced is an error that prints only its first cause.
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

// compareData reads the hash of each member at the newest revision that all of them have.
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
		if out[i].Later, err = survey.Status(ctx, at); err == nil {
			out[i].Hash, err = survey.HashKV(ctx, at, revision)
		}
		out[i].Err = err
	})
	return out
}

// decidingCertificate returns the certificate whose expiry decides for the whole file.
func decidingCertificate(name string,
	decides func(a, b *x509.Certificate) bool) (found *x509.Certificate, err error) {
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
		if c, err = x509.ParseCertificate(b.Bytes); err == nil &&
			(found == nil || decides(c, found)) {
			found = c
		}
	}
	if err == nil && found == nil {
		err = fmt.Errorf("%s: no certificate", name)
	}
	return found, err
}
