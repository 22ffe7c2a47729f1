// Package timesapi answers when revisions were made: it implements the service vigil.Times, and
// reads the times in the metadata of calls.
package timesapi

import (
	"context"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/kv"
)

// Source is the part of the member that knows when revisions were made. Times are milliseconds
// since 1970.
type Source interface {
	// RevisionAt returns the newest revision that is known to be made at or before a time. A
	// serializable call does not wait.
	RevisionAt(ctx context.Context, ms int64, serializable bool) (int64, error)
	// Spans returns when revisions were made.
	Spans(ctx context.Context, revisions []int64) ([]kv.TimeSpan, error)
}

// atKey is the metadata that names a time, in milliseconds since 1970: a range is read at it, and a
// watcher without a start revision starts after it.
const atKey = "vigil-at"

// maxSpans is the limit for revisions in a call of Spans.
const maxSpans = 10_000

var (
	errAtTime = status.Errorf(codes.InvalidArgument,
		"vigil: the metadata %s is not one time in milliseconds since 1970", atKey)
	errAtRevision = status.Errorf(codes.InvalidArgument,
		"vigil: the metadata %s and a revision are given: leave out one of them", atKey)
	errTooMany = status.Errorf(codes.InvalidArgument,
		"vigil: too many revisions in one call: the limit is %d", maxSpans)
)

// timeOf returns the time in the metadata of a call.
func timeOf(ctx context.Context) (ms int64, given bool, err error) {
	v := metadata.ValueFromIncomingContext(ctx, atKey)
	if len(v) == 0 {
		return 0, false, nil
	}
	ms, err = strconv.ParseInt(v[0], 10, 64)
	if err != nil || len(v) > 1 || ms < 0 || ms > kv.MaxTime {
		return 0, true, errAtTime
	}
	return ms, true, nil
}

// Request returns a request for the revision of the time in the metadata of its call, or r if there
// is none. Without a source times are ignored.
func Request(ctx context.Context, from Source, r *kv.RangeRequest) (*kv.RangeRequest, error) {
	ms, given, err := timeOf(ctx)
	switch {
	case err != nil:
		return nil, err
	case !given || from == nil:
		return r, nil
	case r.Revision != 0:
		return nil, errAtRevision
	}
	rev, err := from.RevisionAt(ctx, ms, r.Serializable)
	if err != nil {
		return nil, apierror.Status(err)
	}
	past := *r
	// The revision was read as the request demands; its contents do not change.
	past.Revision, past.Serializable = rev, true
	return &past, nil
}

// Given reports whether the metadata of a call name a time.
func Given(md metadata.MD) bool { return len(md[atKey]) > 0 }

// Start returns the start revision of watchers of a stream that name none: the first after the time
// in the metadata, or 0. A stream must not wait, so this is the revision by what this member has
// applied: if other members have applied more, the watchers also receive earlier events.
func Start(ctx context.Context, from Source) (int64, error) {
	ms, given, err := timeOf(ctx)
	if err != nil || !given || from == nil {
		return 0, err
	}
	rev, err := from.RevisionAt(ctx, ms, true)
	return rev + 1, apierror.Status(err)
}

// Service returns the service vigil.Times.
func Service(from Source) gate.Service {
	t := timesService{from}
	return gate.Service{Name: string(lockpb.Times.FullName()), Methods: []gate.Endpoint{
		gate.DynamicUnary(lockpb.Times, "RevisionAt", t.revisionAt),
		gate.DynamicUnary(lockpb.Times, "Spans", t.spans),
	}}
}

// timesService implements the service.
type timesService struct{ from Source }

func (t timesService) revisionAt(ctx context.Context, in, out *dynamicpb.Message) error {
	rev, err := t.from.RevisionAt(ctx, lockpb.Int(in, "time"), lockpb.Bool(in, "serializable"))
	if err != nil {
		return apierror.Status(err)
	}
	lockpb.Set(out, "revision", rev)
	return nil
}

func (t timesService) spans(ctx context.Context, in, out *dynamicpb.Message) error {
	revisions := lockpb.Ints(in, "revisions")
	if len(revisions) > maxSpans {
		return errTooMany
	}
	spans, err := t.from.Spans(ctx, revisions)
	if err != nil {
		return apierror.Status(err)
	}
	for _, span := range spans {
		m := lockpb.Append(out, "spans")
		lockpb.Set(m, "after", span.After)
		lockpb.Set(m, "at", span.At)
	}
	return nil
}
