package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
)

// A failure that comes again and again is one line; another one is not taken for it.
func TestFailureClasses(t *testing.T) {
	dial := func(err error) error {
		return fmt.Errorf("http://a:1: %w",
			&net.OpError{Op: "dial", Err: err})
	}
	seen := map[lineKey]error{}
	for _, err := range []error{
		dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		dial(os.NewSyscallError("read", syscall.ECONNRESET)),
		dial(context.DeadlineExceeded),
		fmt.Errorf("%w: %w", errHandshakeTLS, errors.New("common name \"a\" is not allowed")),
		fmt.Errorf("%w: %w", errHandshakeTLS,
			&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}),
		fmt.Errorf("%w: %w", errHandshakeTLS,
			&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}, Host: "a"}}),
		fmt.Errorf("%w: %w", errHandshakeTLS,
			&tls.CertificateVerificationError{Err: x509.CertificateInvalidError{Reason: x509.Expired}}),
		fmt.Errorf("%w: %w", errHandshakeTLS,
			&net.OpError{Op: "remote error", Err: tls.AlertError(42)}),
		fmt.Errorf("%w: %w", errHandshakeTLS,
			&net.OpError{Op: "remote error", Err: tls.AlertError(48)}),
		fmt.Errorf("%w: %w", errHandshakeTLS, io.EOF),
		refuse(CodeCluster, "wrong cluster"),
		errors.New("no such host"),
	} {
		key := failureKey(7, err)
		if other, ok := seen[key]; ok {
			t.Errorf("%v and %v are one line, %v", err, other, key)
		}
		seen[key] = err
		if again := failureKey(7, fmt.Errorf("again: %w", err)); again != key {
			t.Errorf("%v is %v and %v", err, key, again)
		}
	}
}
