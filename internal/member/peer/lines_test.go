package peer

import (
	"context"
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
	dial := func(err error) error { return fmt.Errorf("http://a:1: %w", &net.OpError{Op: "dial", Err: err}) }
	seen := map[lineKey]error{}
	for _, err := range []error{
		dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		dial(os.NewSyscallError("read", syscall.ECONNRESET)),
		dial(context.DeadlineExceeded),
		fmt.Errorf("%w: %w", errHandshakeTLS, errors.New("unknown certificate authority")),
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
