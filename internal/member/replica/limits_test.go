package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/member/replica/apply"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/stream"
	"vigil/internal/store/wal"
	"vigil/internal/vfs/memfs"
)

// What one format holds fits into the next: a negative difference does not compile.
const (
	// A request fits into a record of the store, whatever the other fields of the record are.
	_ = uint(mvcc.MaxRecordBytes - fsm.MaxRequestBytes - 128)
	// A group ends with the request that makes it full.
	_ = uint(wal.MaxEntryBytes - fsm.MaxRequestBytes - maxGroup - 4096)
	_ = uint(wal.MaxGroupBytes - wal.MaxEntryBytes - 4096)
	// A batch has requests below its limit, one request that is not divided, and records of the
	// member.
	_ = uint(history.MaxBatchBytes - apply.PartFactor*maxBatch - mvcc.MaxChangeBytes - 4<<20)
	// The changes of a revision have numbers of 31 bits.
	_ = uint(1<<31 - mvcc.MaxChangeBytes/history.RecordOverhead)
	// One record can be written, and the record that it replaces returned.
	_ = uint(mvcc.MaxChangeBytes - mvcc.MaxRecordBytes - history.RecordOverhead)
	_ = uint(mvcc.MaxResultBytes - mvcc.MaxRecordBytes)
	// A snapshot takes each record.
	_ = uint(stream.MaxItem - mvcc.MaxRecordBytes)
)

// TestGrowingRequestsStopNobody: many small requests at once that each write a copy of a large
// value become several batches of history, and requests above a limit are refused by all alike,
// also after a restart.
func TestGrowingRequestsStopNobody(t *testing.T) {
	fs := memfs.New()
	c := config(fs)
	var crashed atomic.Bool
	c.Logger = strictUntil(t, &crashed)
	c.MaxBatchBytes = 16 << 10
	c.MaxRequestBytes = 64 << 10
	c.Store = mvcc.Options{Limits: mvcc.Limits{RecordBytes: 8 << 10, ChangeBytes: 20 << 10,
		ResultBytes: 64 << 10, VisitedKeys: 100}}
	r := start(t, c)
	value := make([]byte, 7<<10)
	mustPut(t, r, "large", string(value))

	before := r.current.Load().Log.Applied()
	var wg sync.WaitGroup
	for range 300 {
		wg.Go(func() {
			if _, err := r.Put(t.Context(),
				&kv.PutRequest{Key: []byte("large"), IgnoreValue: true}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	t.Logf("%d entries", r.current.Load().Log.Applied().Index-before.Index)

	var limit *kv.LimitError
	copies := &kv.TxnRequest{}
	for i := range 4 {
		mustPut(t, r, fmt.Sprint("copy", i), string(value))
		copies.Success = append(copies.Success,
			kv.Op{Put: &kv.PutRequest{Key: fmt.Append(nil, "copy", i), IgnoreValue: true}})
	}
	for i := range 300 {
		mustPut(t, r, fmt.Sprintf("many/%060d", i), "")
	}
	reads := &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("x")}},
		{Range: &kv.RangeRequest{Key: []byte("many/"), End: []byte("many0")}}}}
	for what, do := range map[string]func() error{
		"put": func() error {
			_, err := r.Put(t.Context(),
				&kv.PutRequest{Key: []byte("k"), Value: make([]byte, 8<<10)})
			return err
		},
		"txn":   func() error { _, err := r.Txn(t.Context(), copies); return err },
		"reads": func() error { _, err := r.Txn(t.Context(), reads); return err },
		"delete": func() error {
			_, err := r.DeleteRange(t.Context(),
				&kv.DeleteRangeRequest{Key: []byte("many/"), End: []byte("many0")})
			return err
		},
	} {
		rev := r.Status().Revision
		if err := do(); !errors.As(err, &limit) {
			t.Errorf("%s: %v", what, err)
		}
		if got := r.Status().Revision; got != rev {
			t.Errorf("%s: revision %d, was %d", what, got, rev)
		}
	}
	want := mustRange(t, r, &kv.RangeRequest{Key: []byte{0}, End: []byte{0}})
	// After a crash the store lags the raft log, which is replayed.
	crashed.Store(true)
	c.FS = fs.Crash(rand.New(rand.NewPCG(1, 2)))
	_ = r.Stop(t.Context())
	c.Logger = strict(t)
	r = start(t, c)
	got := mustRange(t, r, &kv.RangeRequest{Key: []byte{0}, End: []byte{0}})
	if got.Revision != want.Revision || got.Count != want.Count ||
		string(got.KVs.Buf) != string(want.KVs.Buf) {
		t.Errorf("after a crash %d keys at revision %d, want %d at %d", got.Count, got.Revision,
			want.Count, want.Revision)
	}
}

// TestLimitForClientsOnly: a small limit for the requests of clients keeps no member from
// publishing itself, and no lease from ending. A large one leaves room for the largest request.
func TestLimitForClientsOnly(t *testing.T) {
	c := config(memfs.New())
	c.MaxRequestBytes = 50
	c.ClientURLs = []string{"http://localhost:2379",
		"http://a.name.that.is.longer.than.the.limit.for.requests:2379"}
	r := start(t, c)
	for id := range int64(20) {
		mustGrant(t, r, id+1, 1)
	}
	await(t, "the end of the leases", func() bool { return r.LeaseState().Len() == 0 })
	if _, err := r.Put(t.Context(), &kv.PutRequest{Key: make([]byte, 50)}); !errors.Is(err,
		kv.ErrRequestTooLarge) {
		t.Error(err)
	}
	large := Config{MaxRequestBytes: fsm.MaxRequestBytes}.WithDefaults()
	if large.MaxPendingBytes < fsm.MaxRequestBytes {
		t.Errorf("requests of %d bytes, and room for %d", large.MaxRequestBytes,
			large.MaxPendingBytes)
	}
	for name, bad := range map[string]Config{
		"request limit": {MaxRequestBytes: fsm.MaxRequestBytes + 1},
		"group limit":   {MaxGroupBytes: maxGroup + 1},
		"batch limit":   {MaxBatchBytes: maxBatch + 1},
		"client urls":   {ClientURLs: make([]string, cluster.MaxClientURLs+1)},
	} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
