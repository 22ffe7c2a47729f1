package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSelfSignedAfterCrash: files of which a crash has left only a part are generated again, with a
// warning, and what is not readable is an error.
func TestSelfSignedAfterCrash(t *testing.T) {
	for name, harm := range map[string]func(cert, key string) error{
		"another key": func(_, key string) error {
			_, other, err := generate(nil, time.Hour)
			if err != nil {
				return err
			}
			return os.WriteFile(key, other, 0o600)
		},
		"empty certificate": func(cert, _ string) error { return os.Truncate(cert, 0) },
		"half a key":        func(_, key string) error { return os.Truncate(key, 100) },
		"a directory": func(_, key string) error {
			if err := os.Remove(key); err != nil {
				return err
			}
			return os.Mkdir(key, 0o700)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			var log strings.Builder
			open := func() error {
				s, err := Open(Config{Options: Options{Auto: true},
					URLs: []string{"https://localhost:1"}, DataDir: dir,
					SelfSignedValidity: time.Hour,
					Logger:             slog.New(slog.NewTextHandler(&log, nil))})
				if err == nil {
					err = s.SaveSelfSigned()
				}
				return err
			}
			if err := open(); err != nil {
				t.Fatal(err)
			}
			fixtures := filepath.Join(dir, "fixtures", Clients.String())
			if err := harm(filepath.Join(fixtures, "cert.pem"),
				filepath.Join(fixtures, "key.pem")); err != nil {
				t.Fatal(err)
			}
			if err := open(); (err != nil) != (name == "a directory") {
				t.Error(err)
			}
			if warned := strings.Contains(log.String(),
				"another one is generated"); warned == (name == "a directory") {
				t.Errorf("warned: %v", warned)
			}
		})
	}
}

// TestTruncatedRevocations: a file of revocation lists that ends too early is an error, whichever
// list is incomplete: certificates that the rest revokes would be accepted.
func TestTruncatedRevocations(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SubjectKeyId: []byte{1}, KeyUsage: x509.KeyUsageCRLSign}
	var lists []byte
	var ends []int
	for n := range int64(3) {
		der, err := x509.CreateRevocationList(rand.Reader,
			&x509.RevocationList{Number: big.NewInt(n),
				RevokedCertificateEntries: []x509.RevocationListEntry{{SerialNumber: big.NewInt(n),
					RevocationTime: time.Now()}}}, ca, key)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})...)
		ends = append(ends, len(lists))
	}
	file := filepath.Join(t.TempDir(), "crl")
	for n := range len(lists) + 1 {
		if err := os.WriteFile(file, lists[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		var revoked map[string]bool
		// the last byte is a line feed
		whole := slices.ContainsFunc(ends, func(end int) bool { return n == end || n == end-1 })
		between := slices.ContainsFunc(ends,
			func(end int) bool { return n > end && n < end+len("-----BEGIN ") })
		if err := loadRevoked(&revoked, file); (err == nil) != (whole || between) {
			t.Errorf("of %d bytes %d: %v", len(lists), n, err)
		}
	}
}
