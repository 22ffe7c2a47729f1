package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"slices"
	"time"
)

// loaded is the content of the certificate files.
type loaded struct {
	pair, clientPair *tls.Certificate
	pool             *x509.CertPool
	poolEnd          *x509.Certificate // the authority in pool that is valid longest
	revoked          map[string]bool   // by serial number
}

// source is one file, or a certificate and its key.
type source struct {
	files []string
	load  func() error
	stamp []stamp // of the files before the last successful load, nil before that
}

// stamp changes when a file is replaced or written to.
type stamp struct {
	inode           uint64
	size            int64
	modified, moved time.Time
}

// stampOf returns the zero stamp for a missing file, which load will report.
func stampOf(file string) stamp {
	i, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	s := stamp{size: i.Size(), modified: i.ModTime()}
	s.inode, s.moved = identity(i)
	return s
}

// refresh loads the files if they changed, and reports whether it did. After a failure it tries
// again even if they did not change: the cause may be gone, and the files may revoke a certificate.
func (f *source) refresh() (bool, error) {
	now := make([]stamp, len(f.files))
	for i, name := range f.files {
		now[i] = stampOf(name)
	}
	if f.stamp != nil && slices.Equal(now, f.stamp) {
		return false, nil
	}
	if err := f.load(); err != nil {
		return false, err
	}
	f.stamp = now
	return true, nil
}

// sources returns the files that the options name. Each loads its part of l.
func (l *loaded) sources(o *Options, auto *selfSigned) (list []*source) {
	add := func(load func() error, files ...string) {
		if files[0] != "" {
			list = append(list, &source{files: files, load: load})
		}
	}
	if auto != nil {
		list = append(list, &source{load: func() error {
			pair, err := auto.load()
			if err != nil {
				return fmt.Errorf("%s: %w", auto.certFile, err)
			}
			l.pair = &pair
			return nil
		}})
	}
	add(func() error { return loadPair(&l.pair, o.CertFile, o.KeyFile) }, o.CertFile, o.KeyFile)
	add(func() error { return loadPair(&l.clientPair, o.ClientCertFile, o.ClientKeyFile) },
		o.ClientCertFile, o.ClientKeyFile)
	add(func() error { return loadPool(&l.pool, &l.poolEnd, o.TrustedCAFile) }, o.TrustedCAFile)
	add(func() error { return loadRevoked(&l.revoked, o.CRLFile) }, o.CRLFile)
	return list
}

func loadPair(into **tls.Certificate, cert, key string) error {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("%s and %s: %w%s", cert, key, err, explainPair(cert, key))
	}
	*into = &pair
	return nil
}

func loadPool(into **x509.CertPool, end **x509.Certificate, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return fmt.Errorf("%s holds no certificate: %s", file, adviseOnPEM(file, "certificate", b))
	}
	*into, *end = pool, lastExpiry(b)
	return nil
}

// loadRevoked reads revocation lists: one in DER, or any number in PEM.
func loadRevoked(into *map[string]bool, file string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	revoked := map[string]bool{}
	add := func(der []byte) error {
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return fmt.Errorf("%s holds no list of revoked certificates: %w: name a list in PEM "+
				"or DER, as openssl ca -gencrl writes it", file, err)
		}
		for _, e := range list.RevokedCertificateEntries {
			revoked[e.SerialNumber.String()] = true
		}
		return nil
	}
	begun := bytes.Count(b, []byte("-----BEGIN "))
	if begun == 0 {
		err = add(b)
	}
	lists := 0
	for block, rest := pem.Decode(b); block != nil && err == nil; block, rest = pem.Decode(rest) {
		err = add(block.Bytes)
		lists++
	}
	if err != nil {
		return err
	}
	if lists != begun { // pem.Decode skips incomplete blocks
		return fmt.Errorf("%s holds %d lists of revoked certificates, of which %d are complete: "+
			"copy the file again", file, begun, lists)
	}
	*into = revoked
	return nil
}
