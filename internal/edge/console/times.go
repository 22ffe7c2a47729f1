package console

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/kv"
)

// span is when a revision was made, in milliseconds since 1970 by the clock of the leader of that
// time: after From, and at or before To. Both are 0 if unknown.
type span struct {
	From int64 `json:"from,omitempty"`
	To   int64 `json:"to,omitempty"`
}

// maxSpans limits how many revisions one call asks for; the service accepts 10,000.
const maxSpans = 1000

// times is a client of the service vigil.Times, whose messages have no generated types.
type times struct{ conn grpc.ClientConnInterface }

// callMethod calls a method of the service.
func (t times) callMethod(ctx context.Context, method protoreflect.Name,
	fill func(in protoreflect.Message)) (protoreflect.Message, error) {
	m := lockpb.Times.Methods().ByName(method)
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	fill(in)
	err := t.conn.Invoke(ctx, timesMethod(method), in, out)
	return out, err
}

// timesMethod returns the full name of a method for calls.
func timesMethod(name protoreflect.Name) string {
	return "/" + string(lockpb.Times.FullName()) + "/" + string(name)
}

// spans returns when revisions were made, in their order. Without a leader the times are unknown.
func (t times) spans(ctx context.Context, revisions []int64) ([]span, error) {
	out := make([]span, 0, len(revisions))
	for part := range slices.Chunk(revisions, maxSpans) {
		answer, err := t.callMethod(ctx, "Spans", func(in protoreflect.Message) {
			list := in.Mutable(in.Descriptor().Fields().ByName("revisions")).List()
			for _, rev := range part {
				list.Append(protoreflect.ValueOfInt64(rev))
			}
		})
		if err != nil && describe(err).Code == "leaderless" {
			return make([]span, len(revisions)), nil
		}
		if err != nil {
			return nil, err
		}
		list := answer.Get(answer.Descriptor().Fields().ByName("spans")).List()
		for i := range part {
			var s span
			if i < list.Len() {
				m := list.Get(i).Message()
				s = span{lockpb.Int(m, "after"), lockpb.Int(m, "at")}
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// dateChanges sets when changes were made.
func (t times) dateChanges(ctx context.Context, list []version) error {
	revisions := make([]int64, len(list))
	for i := range list {
		revisions[i] = list[i].Mod
	}
	spans, err := t.spans(ctx, revisions)
	for i, s := range spans {
		list[i].span = s
	}
	return err
}

// serveRevision returns the newest revision known to be made at or before a time.
func (c *Console) serveRevision(r *request) (any, error) {
	at, err := r.number("at", 0, kv.MaxTime)
	if err != nil {
		return nil, err
	}
	answer, err := c.times.callMethod(r.ctx, "RevisionAt",
		func(in protoreflect.Message) { lockpb.Set(in, "time", at) })
	if err != nil {
		return nil, err
	}
	return map[string]int64{"revision": lockpb.Int(answer, "revision")}, nil
}
