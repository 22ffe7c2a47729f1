package transport

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The service of these tests. Messages are texts.
const testService = "test.Service"

func text(s string) *wrapperspb.StringValue { return wrapperspb.String(s) }

func unaryMethod(name string, f func(ctx context.Context, in string) (string, error)) Method {
	return Method{Name: name, NewRequest: func() any { return new(wrapperspb.StringValue) },
		Unary: func(ctx context.Context, r any) (any, error) {
			out, err := f(ctx, r.(*wrapperspb.StringValue).Value)
			if err != nil {
				return nil, err
			}
			return text(out), nil
		}}
}

func testServices() []Service {
	return []Service{{testService, []Method{
		unaryMethod("Echo", func(_ context.Context, in string) (string, error) { return in, nil }),
		unaryMethod("Plain", func(ctx context.Context, in string) (string, error) {
			sendUncompressed(ctx)
			return in, nil
		}),
		unaryMethod("Metadata", func(ctx context.Context, _ string) (string, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			var list []string
			for k, v := range md {
				list = append(list, fmt.Sprintf("%s=%q", k, v))
			}
			slices.Sort(list)
			_, deadline := ctx.Deadline()
			host, _, _ := net.SplitHostPort(Remote(ctx))
			return fmt.Sprint(list, deadline, host, TLS(ctx) != nil, ClientOf(ctx) != nil), nil
		}),
		unaryMethod("Meta", func(ctx context.Context, in string) (string, error) {
			// One key each, because grpc-go sends them in any order; the others are not sent.
			md := metadata.MD{"some-bin": {"\x00\xff", ""}, "grpc-encoding": {"x"},
				"content-type": {"x"}, ":x": {"x"}}
			if err := setTrailer(ctx,
				metadata.MD{"last": {"y", "z"}, "grpc-status": {"9"}}); err != nil {
				return "", err
			}
			if in == "trailer" {
				return "", status.Error(codes.NotFound, in)
			}
			if err := setHeader(ctx, md); err != nil {
				return "", err
			}
			if in == "fail" {
				return "", status.Error(codes.NotFound, in)
			}
			return in, nil
		}),
		{Name: "Metas", ServerStreams: true, Stream: func(s Stream) error {
			m := new(wrapperspb.StringValue)
			if err := s.RecvMsg(m); err != nil {
				return err
			}
			_ = setHeader(s.Context(), metadata.MD{"first": {m.Value}})
			for range len(m.Value) {
				if err := s.SendMsg(m); err != nil {
					return err
				}
			}
			_ = setTrailer(s.Context(), metadata.MD{"last": {m.Value}})
			return nil
		}},
		unaryMethod("Fail", func(_ context.Context, in string) (string, error) {
			switch in {
			case "context":
				return "", context.DeadlineExceeded
			case "plain":
				return "", io.ErrShortBuffer
			case "details":
				st, err := status.New(codes.NotFound, "with details").WithDetails(text("why"))
				if err != nil {
					return "", err
				}
				return "", st.Err()
			}
			return "", status.Error(codes.Unavailable, "100% of ünï\x01cödé "+in)
		}),
		{Name: "Chat", ClientStreams: true, ServerStreams: true, Stream: func(s Stream) error {
			for {
				m := new(wrapperspb.StringValue)
				if err := s.RecvMsg(m); err == io.EOF {
					return nil
				} else if err != nil {
					return status.Error(codes.DataLoss, "not seen: "+err.Error())
				}
				switch m.Value {
				case "quit":
					return nil
				case "fail":
					return status.Error(codes.Aborted, "failed")
				}
				if err := s.SendMsg(m); err != nil {
					return err
				}
			}
		}},
		{Name: "Many", ServerStreams: true, Stream: func(s Stream) error {
			m := new(wrapperspb.StringValue)
			if err := s.RecvMsg(m); err != nil {
				return err
			}
			for i := range 100 {
				if err := s.SendMsg(text(strings.Repeat(m.Value, i))); err != nil {
					return err
				}
			}
			return nil
		}},
		{Name: "Sum", ClientStreams: true, Stream: func(s Stream) error {
			n := 0
			for {
				m := new(wrapperspb.StringValue)
				if err := s.RecvMsg(m); err == io.EOF {
					return s.SendMsg(text(fmt.Sprint(n)))
				} else if err != nil {
					return err
				}
				n += len(m.Value)
			}
		}},
	}}}
}

// maxTestMessage is the largest message that the servers of tests receive.
const maxTestMessage = 100_000

// testServer is Server, or grpcServer.
type testServer interface {
	Serve(net.Listener) error
	Stop(context.Context)
}

// startServer starts ours or the server of grpc-go for a test and returns its address.
func startServer(t testing.TB, ours bool, change func(*Options)) (testServer, string) {
	t.Helper()
	o := Options{Services: testServices(),
		Codec:           NewCodec(slog.New(slog.DiscardHandler), new(noCounter), new(noCounter)),
		MaxMessageBytes: maxTestMessage, MaxConcurrentStreams: 1<<32 - 1}
	if change != nil {
		change(&o)
	}
	var s testServer
	if ours {
		s = NewServer(o)
	} else {
		s = newGRPCServer(o)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		s.Stop(ctx)
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s, l.Addr().String()
}

// onBoth runs a test with the server of grpc-go and with ours.
func onBoth(t *testing.T, test func(t *testing.T, ours bool)) {
	for _, ours := range []bool{false, true} {
		t.Run(map[bool]string{false: "grpc-go", true: "ours"}[ours],
			func(t *testing.T) { test(t, ours) })
	}
}
