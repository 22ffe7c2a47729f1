package transport

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
)

// stuck is a compression that takes until it is released.
type stuck struct {
	sync.Mutex
	release chan struct{} // nil if it is at once
	begun   chan struct{}
}

var stuckCompressor = &stuck{}

func init() { encoding.RegisterCompressor(stuckCompressor) }

func (s *stuck) Name() string { return "stuck" }

func (s *stuck) Compress(w io.Writer) (io.WriteCloser, error) {
	s.Lock()
	release, begun := s.release, s.begun
	s.Unlock()
	if release != nil {
		select {
		case begun <- struct{}{}:
		default:
		}
		<-release
	}
	return nopCloser{w}, nil
}

func (s *stuck) Decompress(r io.Reader) (io.Reader, error) { return r, nil }

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// TestOthersOfCompressedStreams: compressing events for one client does not delay events for
// others.
func TestOthersOfCompressedStreams(t *testing.T) {
	opened := make(chan *talk, 10)
	_, addr := startServer(t, true,
		func(o *Options) { o.Services = append(o.Services, talkService(opened, new(atomic.Bool))) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := func(o ...grpc.CallOption) (*talk, grpc.ClientStream) {
		stream, err := dial(t, addr).NewStream(ctx,
			&grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Talks/Talk",
			append(o, grpc.ForceCodec(rawBytes{}))...)
		if err != nil {
			t.Fatal(err)
		}
		s := receiveWithin(t, opened)
		for range 3 {
			if err := stream.RecvMsg(new([]byte)); err != nil {
				t.Fatal(err)
			}
		}
		return s, stream
	}
	compressed, slow := begin(grpc.UseCompressor("stuck"))
	plain, quick := begin()
	release := make(chan struct{})
	stuckCompressor.Lock()
	stuckCompressor.release, stuckCompressor.begun = release, make(chan struct{}, 1)
	begun := stuckCompressor.begun
	stuckCompressor.Unlock()
	t.Cleanup(func() {
		stuckCompressor.Lock()
		defer stuckCompressor.Unlock()
		stuckCompressor.release = nil
	})
	for range 2 {
		compressed.due.Add(1)
		plain.due.Add(1)
		// as the goroutine does that serves all watch streams
		WakeAll([]Peer{compressed.peer, plain.peer})
		<-begun
		if err := quick.RecvMsg(new([]byte)); err != nil {
			t.Fatal(err)
		}
		begun <- struct{}{}
	}
	close(release)
	for range 2 {
		if err := slow.RecvMsg(new([]byte)); err != nil {
			t.Fatal(err)
		}
	}
}
