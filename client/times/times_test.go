package times_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"

	"vigil/client"
	"vigil/client/internal/serverprocess"
	"vigil/client/times"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

var endpoint string

func TestMain(m *testing.M) { serverprocess.Run(m, &endpoint) }

func connect(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Endpoints: []string{endpoint}, DialTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// put writes a key, and waits until the time of its revision is known.
func put(t *testing.T, c *client.Client, key, value string) (int64, times.Span) {
	t.Helper()
	r, err := c.Put(t.Context(), key, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	rev := r.Header.Revision
	for {
		list, err := times.Of(t.Context(), c, rev)
		if err != nil {
			t.Fatal(err)
		}
		if at := list[0].At; !at.IsZero() {
			for !time.Now().After(at.Add(time.Millisecond)) { // the next revision has a later time
				time.Sleep(time.Millisecond)
			}
			return rev, list[0]
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestTimes(t *testing.T) {
	c := connect(t)
	ctx := t.Context()
	if _, err := times.RevisionAt(ctx, c, time.Now().Add(-time.Hour)); !errors.Is(err,
		times.ErrUnknown) {
		t.Errorf("without any write: %v", err)
	}
	var spans []times.Span
	var revs []int64
	for i := range 3 {
		rev, span := put(t, c, "k", fmt.Sprint(i))
		revs, spans = append(revs, rev), append(spans, span)
	}
	for i := 1; i < len(spans); i++ {
		if spans[i].After.Before(spans[i-1].At) || !spans[i].At.After(spans[i].After) {
			t.Errorf("spans %v", spans)
		}
	}
	all, err := times.Of(ctx, c, append(revs, revs[2]+1000)...)
	if err != nil || len(all) != 4 || all[1] != spans[1] || !all[3].At.IsZero() ||
		all[3].After.IsZero() {
		t.Errorf("times %v, %v, want %v and one that is not known", all, err, spans)
	}
	for i := range 2 {
		past := spans[i+1].At.Add(-time.Millisecond)
		rev, err := times.RevisionAt(ctx, c, past)
		if err != nil || rev != revs[i] {
			t.Fatalf("revision at %v: %d, %v, want %d", past, rev, err, revs[i])
		}
		// The metadata of a call do the same, for clients in any language.
		at := metadata.AppendToOutgoingContext(ctx, "vigil-at", fmt.Sprint(past.UnixMilli()))
		for _, serializable := range []bool{false, true} {
			r, err := etcdserverpb.NewKVClient(c.Conn()).Range(at,
				&etcdserverpb.RangeRequest{Key: []byte("k"), Serializable: serializable})
			if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != fmt.Sprint(i) {
				t.Errorf("range at %v: %v, %v", past, r, err)
			}
		}
		list, err := etcdserverpb.NewKVClient(c.Conn()).RangeStream(at,
			&etcdserverpb.RangeRequest{Key: []byte("k")})
		if err != nil {
			t.Fatal(err)
		}
		if piece, err := list.Recv(); err != nil ||
			string(piece.GetRangeResponse().GetKvs()[0].Value) != fmt.Sprint(i) {
			t.Errorf("stream at %v: %v, %v", past, piece, err)
		}
		if _, err := etcdserverpb.NewKVClient(c.Conn()).Range(at,
			&etcdserverpb.RangeRequest{Key: []byte("k"), Revision: revs[i]}); err == nil {
			t.Error("a time and a revision are accepted")
		}
		watch(t, c, at, fmt.Sprint(i+1))
	}
	bad := metadata.AppendToOutgoingContext(ctx, "vigil-at", "noon")
	if _, err := etcdserverpb.NewKVClient(c.Conn()).Range(bad,
		&etcdserverpb.RangeRequest{Key: []byte("k")}); err == nil {
		t.Error("a malformed time is accepted")
	}

	if _, err := times.RevisionAt(ctx, c, time.Now().Add(time.Hour)); !errors.Is(err,
		client.ErrFutureRevision) {
		t.Errorf("in the future: %v", err)
	}
	if _, err := c.Compact(ctx, revs[2]); err != nil {
		t.Fatal(err)
	}
	if _, err := times.RevisionAt(ctx, c, spans[1].At); !errors.Is(err, client.ErrCompacted) {
		t.Errorf("compacted: %v", err)
	} else {
		t.Log(err)
	}
}

// watch checks the value of the first event of a watch that starts at a time.
func watch(t *testing.T, c *client.Client, ctx context.Context, want string) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := etcdserverpb.NewWatchClient(c.Conn()).Watch(ctx)
	if err == nil {
		err = s.Send(&etcdserverpb.WatchRequest{RequestUnion: &etcdserverpb.WatchRequest_CreateRequest{CreateRequest: &etcdserverpb.WatchCreateRequest{Key: []byte("k")}}})
	}
	for err == nil {
		var r *etcdserverpb.WatchResponse
		if r, err = s.Recv(); err == nil && len(r.Events) > 0 {
			if got := string(r.Events[0].Kv.Value); got != want {
				t.Errorf("the first event is of value %s, want %s", got, want)
			}
			return
		}
	}
	t.Error(err)
}
