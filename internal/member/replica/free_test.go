package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// The file system does not say how much space is free, as with a disk that hangs. Only what needs
// to know it waits: a put, up to its timeout. Everything else goes on, and the member stops.
func TestFileSystemThatDoesNotSayWhatIsFree(t *testing.T) {
	hung := make(chan struct{})
	var hangs atomic.Bool
	fs := faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if hangs.Load() && (op == faultfs.OpPreallocate || op == faultfs.OpFree) {
			<-hung
		}
		return faultfs.None
	})
	c := config(fs)
	c.RequestTimeout = 200 * time.Millisecond
	r := start(t, c)
	await(t, "space that is allocated ahead", func() bool { return allocated(r) })
	release := sync.OnceFunc(func() { hangs.Store(false); close(hung) })
	defer release()
	hangs.Store(true)
	var err error
	goOn := func(what string, do func()) {
		t.Helper()
		done := make(chan struct{})
		go func() { do(); close(done) }()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatalf("%s does not return", what)
		}
	}
	goOn("a put", func() {
		for i := 0; err == nil; i++ {
			_, err = r.Put(t.Context(),
				&kv.PutRequest{Key: fmt.Appendf(nil, "k%d", i), Value: make([]byte, 200)})
		}
	})
	if !errors.Is(err, kv.ErrTimeout) {
		t.Errorf("the put that must know the free space: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	put := make(chan error, 1)
	go func() {
		_, err := r.Put(ctx, &kv.PutRequest{Key: []byte("k"), Value: make([]byte, 2000)})
		put <- err
	}()
	goOn("a deletion", func() {
		_,
			err = r.DeleteRange(t.Context(), &kv.DeleteRangeRequest{Key: []byte("k0")})
	})
	if err != nil {
		t.Errorf("a deletion: %v", err)
	}
	goOn("a read", func() { mustRange(t, r, &kv.RangeRequest{Key: []byte("k1")}) })
	goOn("the status", func() { r.Status() })
	cancel()
	goOn("a put that is given up", func() { err = <-put })
	if !errors.Is(err, context.Canceled) && !errors.Is(err, kv.ErrTimeout) {
		t.Errorf("a put that is given up: %v", err)
	}
	release()
	await(t, "a put", func() bool {
		_, err := r.Put(t.Context(), &kv.PutRequest{Key: []byte("k"), Value: []byte("v")})
		return err == nil
	})
}
