package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vigil/cmd/vigilctl/exit"
)

// hostile starts a server whose calls of any service are answered by one function, and returns its
// address.
func hostile(t *testing.T, answer func(method string, s grpc.ServerStream) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(s)
		return answer(strings.TrimPrefix(method, "/"), s)
	}))
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestMalformedWatch: a watch whose server sends what is no answer ends with an error, and is not
// tried again for ever.
func TestMalformedWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var streams atomic.Int64
	at := hostile(t, func(method string, s grpc.ServerStream) error {
		if method != "etcdserverpb.Watch/Watch" {
			return status.Error(codes.Unimplemented, method)
		}
		if streams.Add(1) == 3 {
			cancel()
		}
		if err := s.RecvMsg(new(etcdserverpb.WatchRequest)); err != nil {
			return err
		}
		if err := s.SendMsg(&etcdserverpb.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: 1}, WatchId: 1, Created: true}); err != nil {
			return err
		}
		// a header that ends too early
		if err := s.SendMsg(&mvccpb.KeyValue{Key: []byte{0xff}}); err != nil {
			return err
		}
		<-s.Context().Done()
		return nil
	})
	var text strings.Builder
	if code := run(ctx, []string{"watch", "k", "--endpoints", at}, strings.NewReader(""),
		io.Discard, &text); code != exit.Failure || streams.Load() != 1 {
		t.Errorf("%d after %d streams: %s", code, streams.Load(), text.String())
	}
}

// TestHostileAnswers: an answer that no server should send is an error of the command, not of the
// program.
func TestHostileAnswers(t *testing.T) {
	dump := filepath.Join(t.TempDir(), "d.jsonl")
	kv := func(key string) *mvccpb.KeyValue {
		return &mvccpb.KeyValue{Key: []byte(key), Value: []byte("v"), CreateRevision: 1,
			ModRevision: 1, Version: 1}
	}
	header := &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 1}
	var ranges []*etcdserverpb.RangeResponse
	at := hostile(t, func(method string, s grpc.ServerStream) error {
		if err := s.RecvMsg(new(etcdserverpb.PutRequest)); err != nil { // any request
			return err
		}
		switch method {
		case "etcdserverpb.KV/RangeStream":
			return s.SendMsg(&etcdserverpb.RangeStreamResponse{})
		case "etcdserverpb.KV/Range":
			r := ranges[0]
			if len(ranges) > 1 {
				ranges = ranges[1:]
			}
			return s.SendMsg(r)
		}
		return s.SendMsg(&etcdserverpb.TxnResponse{Header: header})
	})
	for _, c := range []struct {
		name string
		args []string
		code int
		text string
		kvs  []*etcdserverpb.RangeResponse
	}{
		{"an empty piece", []string{"get", "k", "--stream"}, exit.Failure, "", nil},
		{"a key outside of the range", []string{"__complete", "get", "abcdef"}, 0, "",
			[]*etcdserverpb.RangeResponse{{Header: header, Kvs: []*mvccpb.KeyValue{kv("a")}}}},
		{"another key in a listing", []string{"ls", "p/"}, exit.Failure,
			"not the keys that were asked for",
			[]*etcdserverpb.RangeResponse{{Header: header, Count: 1},
				{Header: header, Kvs: []*mvccpb.KeyValue{kv("q")}}}},
		{"a listing without end", []string{"ls", "p/"}, exit.Failure,
			"not the keys that were asked for",
			[]*etcdserverpb.RangeResponse{{Header: header, Count: 1},
				{Header: header, More: true}}},
		{"a folder again and again", []string{"ls"}, exit.Failure,
			"not the keys that were asked for",
			[]*etcdserverpb.RangeResponse{{Header: header, More: true,
				Kvs: []*mvccpb.KeyValue{kv("a/b")}}}},
		{"a key twice", []string{"dump", dump}, exit.Failure, "not after",
			[]*etcdserverpb.RangeResponse{{Header: header, Count: 2},
				{Header: header, Count: 2, Kvs: []*mvccpb.KeyValue{kv("k"), kv("k")}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ranges = c.kvs
			var out, errs bytes.Buffer
			code := run(t.Context(), append(c.args, "--endpoints", at),
				strings.NewReader(""), &out, &errs)
			if code != c.code || !strings.Contains(errs.String(), c.text) {
				t.Errorf("%d %s%s", code, out.String(), errs.String())
			}
		})
	}
	if left, err := os.ReadDir(filepath.Dir(dump)); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}
