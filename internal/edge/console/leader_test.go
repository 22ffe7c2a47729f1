package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// patient is a connection whose calls take a while, unless they are serializable reads.
type patient struct {
	grpc.ClientConnInterface
	takes time.Duration
}

// Invoke implements grpc.ClientConnInterface.
func (p patient) Invoke(ctx context.Context, _ string, in, _ any, _ ...grpc.CallOption) error {
	if r, ok := in.(*etcdserverpb.RangeRequest); ok && r.Serializable {
		return nil
	}
	select {
	case <-time.After(p.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TestLeaderConn: a call waits as long as there is a leader, and while leadership is handed over.
// When the leader is lost, a read is answered locally if it may be, and everything else is refused;
// a change says that it may still be made.
func TestLeaderConn(t *testing.T) {
	read, put := &etcdserverpb.RangeRequest{Key: []byte("a")},
		&etcdserverpb.PutRequest{Key: []byte("a")}
	for _, c := range []struct {
		name   string
		method string
		in     any
		lost   time.Duration // after which the leader is lost; negative if there is none
		back   time.Duration // after which there is a leader again, 0 for never
		local  bool          // whether the request may have local data
		takes  time.Duration
		code   string // of the error
		says   string // in the note or in the error
	}{
		{"a read with a leader", etcdserverpb.KV_Range_FullMethodName, read, time.Hour, 0, true,
			5 * time.Second, "", ""},
		{"a read whose leader is lost", etcdserverpb.KV_Range_FullMethodName, read, time.Second, 0,
			true, time.Second + handOverTime, "", "mü1 has had no leader for 1s"},
		{"a read without a leader", etcdserverpb.KV_Range_FullMethodName, read, -1, 0, true, 0, "",
			"mü1 has had no leader yet"},
		{"a read that must not be local", etcdserverpb.KV_Range_FullMethodName, read,
			-1, 0, false, 0,
			"leaderless", "mü1 has had no leader yet"},
		{"a serializable read", etcdserverpb.KV_Range_FullMethodName,
			&etcdserverpb.RangeRequest{Serializable: true}, -1, 0, true, 0, "", ""},
		{"a change whose leader is lost", etcdserverpb.KV_Put_FullMethodName, put, time.Second, 0,
			true, time.Second + handOverTime, "leaderless", "the change may still be made"},
		{"a change without a leader", etcdserverpb.KV_Put_FullMethodName, put, -1, 0, true, 0,
			"leaderless", "mü1 has had no leader yet"},
		{"a call that needs none", etcdserverpb.Maintenance_Status_FullMethodName,
			&etcdserverpb.StatusRequest{}, -1, 0, false, 5 * time.Second, "", ""},
		{"a read during a hand-over", etcdserverpb.KV_Range_FullMethodName, read, time.Second,
			handOverTime / 2, true, 5 * time.Second, "", ""},
		{"a change during a hand-over", etcdserverpb.KV_Put_FullMethodName, put, time.Second,
			handOverTime / 2, true, 5 * time.Second, "", ""},
		{"a read that begins in a hand-over", etcdserverpb.KV_Range_FullMethodName, read, 0,
			handOverTime / 2, true, 5 * time.Second, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lost atomic.Int64
				conn := &leaderConn{patient{takes: 5 * time.Second}, "mü1", func() Leadership {
					if n := lost.Load(); n != 0 {
						return Leadership{Lost: time.Unix(0, n)}
					}
					return Leadership{Known: c.lost >= 0}
				}}
				loss := time.AfterFunc(max(c.lost, 0), func() {
					if c.lost >= 0 {
						lost.Store(time.Now().UnixNano())
					}
				})
				defer loss.Stop()
				if c.back > 0 {
					defer time.AfterFunc(c.lost+c.back, func() { lost.Store(0) }).Stop()
				}
				synctest.Wait()
				data, ctx := &localData{}, t.Context()
				if c.local {
					ctx = context.WithValue(ctx, localKey{}, data)
				}
				start := time.Now()
				err := conn.Invoke(ctx, c.method, c.in, nil)
				took := time.Since(start)
				h := http.Header{}
				data.noteInHeader(h)
				said, escaped := url.PathUnescape(h.Get(localHeader))
				if escaped != nil ||
					strings.ContainsFunc(h.Get(localHeader),
						func(r rune) bool { return r > unicode.MaxASCII }) {
					t.Errorf("the header is %q", h.Get(localHeader))
				}
				f := &failure{}
				if errors.As(err, &f) {
					said = f.Text
				} else if err != nil {
					t.Error(err)
				}
				if f.Code != c.code || !strings.Contains(said, c.says) ||
					(c.says == "") != (said == "") {
					t.Errorf("code %q, %q", f.Code, said)
				}
				if late := took - c.takes; late < 0 || late > 2*leaderPause {
					t.Errorf("took %v, want %v", took, c.takes)
				}
			})
		})
	}
}
