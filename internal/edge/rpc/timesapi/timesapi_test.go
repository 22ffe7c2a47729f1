package timesapi

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/kv"
)

// source knows that revision n was made at n seconds, up to revision 9, and that those below 3 are
// compacted. Serializable calls know one revision less.
type source struct{}

func (source) RevisionAt(_ context.Context, ms int64, serializable bool) (int64, error) {
	rev := ms / 1000
	switch {
	case rev > 9:
		return 0, &kv.TimeError{Reason: kv.TimeInFuture, Time: ms, Bound: 9000}
	case rev < 3:
		return 0, &kv.TimeError{Reason: kv.TimeCompacted, Time: ms, Revision: rev,
			CompactRevision: 3, Bound: 3000}
	case serializable:
		return rev - 1, nil
	}
	return rev, nil
}

func (source) Spans(_ context.Context, revisions []int64) (out []kv.TimeSpan, _ error) {
	for _, rev := range revisions {
		out = append(out, kv.TimeSpan{After: 1000 * (rev - 1), At: 1000 * rev})
	}
	return out, nil
}

func at(values ...string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.MD{atKey: values})
}

func TestRequest(t *testing.T) {
	for _, c := range []struct {
		ctx  context.Context
		r    kv.RangeRequest
		want kv.RangeRequest
		code codes.Code
	}{
		{ctx: context.Background(), r: kv.RangeRequest{Limit: 5}, want: kv.RangeRequest{Limit: 5}},
		{ctx: at("5500"), r: kv.RangeRequest{Limit: 5},
			want: kv.RangeRequest{Limit: 5, Revision: 5, Serializable: true}},
		{ctx: at("5500"), r: kv.RangeRequest{Serializable: true},
			want: kv.RangeRequest{Revision: 4, Serializable: true}},
		{ctx: at("5500"), r: kv.RangeRequest{Revision: 5}, code: codes.InvalidArgument},
		{ctx: at("5500", "5500"), code: codes.InvalidArgument},
		{ctx: at(""), code: codes.InvalidArgument},
		{ctx: at("-1"), code: codes.InvalidArgument},
		{ctx: at("9007199254740993"), code: codes.InvalidArgument},
		{ctx: at("99999999999999999999"), code: codes.InvalidArgument},
		{ctx: at("10000"), code: codes.OutOfRange},
		{ctx: at("2000"), code: codes.OutOfRange},
	} {
		got, err := Request(c.ctx, source{}, &c.r)
		if status.Code(err) != c.code {
			t.Errorf("%v: %v, want %v", c, err, c.code)
		}
		if err == nil && (got.Revision != c.want.Revision ||
			got.Serializable != c.want.Serializable || got.Limit != c.want.Limit) {
			t.Errorf("%v: %+v, want %+v", c, got, c.want)
		}
	}
	if r := (&kv.RangeRequest{}); true {
		if got, err := Request(at("5500"), nil, r); got != r || err != nil {
			t.Errorf("without a source: %v, %v", got, err)
		}
	}
	_, err := Request(at("2000"), source{}, &kv.RangeRequest{})
	want := rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted) +
		": revision 2 of 1970-01-01T00:00:02.000Z has been compacted at revision 3: the first time that can be read is 1970-01-01T00:00:03.000Z"
	if got := status.Convert(err).Message(); got != want {
		t.Errorf("compacted: %s, want %s", got, want)
	}
}

func TestStart(t *testing.T) {
	for _, c := range []struct {
		ctx  context.Context
		want int64
		code codes.Code
	}{{context.Background(), 0, codes.OK}, {at("5500"), 5, codes.OK},
		{at("x"), 0, codes.InvalidArgument}, {at("10000"), 0, codes.OutOfRange}} {
		got, err := Start(c.ctx, source{})
		if status.Code(err) != c.code || err == nil && got != c.want {
			t.Errorf("%v: %d, %v, want %d", c.ctx, got, err, c.want)
		}
	}
}

func TestSpans(t *testing.T) {
	service := timesService{source{}}
	spans := lockpb.Times.Methods().ByName("Spans")
	in, out := dynamicpb.NewMessage(spans.Input()), dynamicpb.NewMessage(spans.Output())
	list := in.Mutable(spans.Input().Fields().ByName("revisions")).List()
	value := list.NewElement()
	for range maxSpans {
		list.Append(value)
	}
	if err := service.spans(t.Context(), in, out); err != nil {
		t.Fatal(err)
	}
	if n := out.Get(spans.Output().Fields().ByName("spans")).List().Len(); n != maxSpans {
		t.Errorf("%d spans of %d revisions", n, maxSpans)
	}
	list.Append(value)
	if err := service.spans(t.Context(), in, out); status.Code(err) != codes.InvalidArgument {
		t.Errorf("%d revisions: %v", maxSpans+1, err)
	}
}
