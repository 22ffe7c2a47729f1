package fsm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/lineage"
)

// group encodes requests the way a proposer does.
func group(t testing.TB, h GroupHeader, reqs ...*Request) []byte {
	t.Helper()
	b := AppendHeader(nil)
	for _, r := range reqs {
		var err error
		if b, err = AppendRequest(b, r); err != nil {
			t.Fatal(err)
		}
	}
	h.Count = len(reqs)
	PutHeader(b, h)
	return b
}

// decodeAll decodes a group into requests that own what they hold.
func decodeAll(b []byte) (GroupHeader, []*Request, error) {
	var d Decoder
	h, err := d.Reset(b)
	if err != nil {
		return h, nil, err
	}
	var out []*Request
	for {
		r, err := d.Next()
		if err != nil {
			return h, nil, err
		}
		if r == nil {
			return h, out, nil
		}
		// The next call reuses r: keep what a decoder of its own makes of it.
		var own Decoder
		enc, err := AppendRequest(AppendHeader(nil), r)
		if err != nil {
			return h, nil, err
		}
		PutHeader(enc, GroupHeader{Count: 1})
		if _, err := own.Reset(enc); err != nil {
			return h, nil, err
		}
		q, err := own.Next()
		if err != nil {
			return h, nil, err
		}
		out = append(out, q)
	}
}

// The encodings of a few requests, byte for byte: a change here is a new version of the format.
func TestGolden(t *testing.T) {
	requests := map[string]*Request{
		"put":      {Put: &kv.PutRequest{Key: []byte("k"), Value: []byte("value"), Lease: -1, PrevKV: true}},
		"ignore":   {Put: &kv.PutRequest{Key: []byte("k"), IgnoreValue: true, IgnoreLease: true}},
		"delete":   {DeleteRange: &kv.DeleteRangeRequest{Key: []byte("a"), End: []byte("b"), PrevKV: true}},
		"compact":  {Compact: &kv.CompactRequest{Revision: 300, Physical: true}},
		"identity": {Identity: auth.Identity{User: "root", Revision: 7}, Put: &kv.PutRequest{Key: []byte("k")}},
		"member":   {Identity: auth.Identity{Member: true}, Compact: &kv.CompactRequest{Revision: 300}},
		"alarm":    {Alarm: &kv.AlarmChange{Alarm: kv.Alarm{MemberID: 0x8e9e05c52164694d, Type: kv.AlarmNoSpace}}},
		"disarm":   {Alarm: &kv.AlarmChange{Alarm: kv.Alarm{MemberID: 1, Type: kv.AlarmCorrupt}, Clear: true}},
		"down":     {Version: &kv.VersionChange{Op: kv.DowngradeBegin, Version: kv.Version{Major: 3, Minor: 6}}},
		"claim":    {Claim: &lineage.Claim{Term: 3, ID: lineage.ID{0: 1, 15: 0xff}}},
		"begin":    {Claim: &lineage.Claim{Term: 300, ID: lineage.ID{7}, Restart: true}},
		"place":    {Archive: &lineage.Archive{Place: lineage.PlaceOf("file:///srv/archive"), ID: lineage.ID{9}}},
		"stay":     {Version: &kv.VersionChange{Op: kv.DowngradeEnd}},
		"attrs":    {Attributes: &cluster.Member{ID: 0x8e9e05c52164694d, Name: "default", ClientURLs: []string{"http://localhost:2379"}}},
		"grant":    {LeaseGrant: &kv.LeaseGrantRequest{ID: 0x694d7693d0d6a8b0, TTL: 60}},
		"revoke":   {LeaseRevoke: &kv.LeaseRevokeRequest{ID: -1}},
		"left": {LeaseCheckpoint: &kv.LeaseCheckpointRequest{Term: 3, Checkpoints: []kv.LeaseCheckpoint{
			{LeaseRef: kv.LeaseRef{ID: 1, Granted: 300}, Remaining: 59, Since: 300}, {LeaseRef: kv.LeaseRef{ID: 2, Granted: 301}}}}},
		"expire":  {LeaseExpire: &kv.LeaseExpireRequest{Term: 3, Leases: []kv.LeaseRef{{ID: 1, Granted: 300}, {ID: 2, Granted: 301}}}},
		"adduser": {Identity: auth.Identity{User: "root", Revision: 7}, Auth: &kv.AuthRequest{Op: kv.UserAdd, User: "alice", Hash: "JDJh", NoPassword: true}},
		"permit": {Auth: &kv.AuthRequest{Op: kv.RoleGrantPermission, Role: "r", Permission: kv.Permission{
			Type: kv.PermitReadWrite, Key: []byte("a"), End: []byte("b")}}},
		"token":     {Auth: &kv.AuthRequest{Op: kv.Authenticate, User: "alice", TokenHash: "abcdefgh", Revision: 300}},
		"tokensend": {Auth: &kv.AuthRequest{Op: kv.TokensEnd, Index: 300}},
		"txn": {Txn: &kv.TxnRequest{
			Compare: []kv.Compare{
				{Key: []byte("k"), Target: kv.CompareMod, Result: kv.Equal, Number: 5},
				{Key: []byte("k"), End: []byte("l"), Target: kv.CompareValue, Result: kv.NotEqual, Value: []byte("v")},
			},
			Success: []kv.Op{{Put: &kv.PutRequest{Key: []byte("k"), Value: []byte("w")}}, {}},
			Failure: []kv.Op{
				{Range: &kv.RangeRequest{Key: []byte("k")}},
				{Range: &kv.RangeRequest{Key: []byte("k"), End: []byte{0}, Limit: 10, Order: kv.SortDescend, CountOnly: true}},
				{Txn: &kv.TxnRequest{Success: []kv.Op{{Delete: &kv.DeleteRangeRequest{Key: []byte("d")}}}}},
			},
		}},
	}
	datadriven.RunTest(t, "testdata/encoding.txt", func(t *testing.T, d *datadriven.TestData) string {
		var reqs []*Request
		for _, name := range strings.Fields(d.Input) {
			r, ok := requests[name]
			if !ok {
				d.Fatalf(t, "no request %s", name)
			}
			reqs = append(reqs, r)
		}
		b := group(t, GroupHeader{Proposer: 0x1122334455667788, Sequence: 42, Time: 1_795_514_520_000}, reqs...)
		h, back, err := decodeAll(b)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		if h.Count != len(reqs) || h.Proposer != 0x1122334455667788 || h.Sequence != 42 || h.Time != 1_795_514_520_000 {
			d.Fatalf(t, "header %+v", h)
		}
		for i := range reqs {
			if !reflect.DeepEqual(back[i], reqs[i]) {
				d.Fatalf(t, "request %d came back as %+v", i, back[i])
			}
		}
		return hex.Dump(b)
	})
}

func TestEncodingRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	g := generator{rand.New(rand.NewPCG(seed, 2))}
	for i := range 3000 {
		var reqs []*Request
		for range g.IntN(5) {
			reqs = append(reqs, g.request())
		}
		b := group(t, GroupHeader{Proposer: g.Uint64(), Sequence: g.Uint64(), Time: g.Int64N(kv.MaxTime + 1)}, reqs...)
		_, got, err := decodeAll(b)
		if err != nil {
			t.Fatalf("seed %d, group %d: %v", seed, i, err)
		}
		if !reflect.DeepEqual(got, reqs) {
			t.Fatalf("seed %d, group %d: encoded %+v, decoded %+v", seed, i, reqs, got)
		}
		// No prefix of a group is a group.
		if n := g.IntN(len(b)); n < len(b) {
			if _, _, err := decodeAll(b[:n]); err == nil && len(reqs) > 0 {
				t.Fatalf("seed %d, group %d: the first %d of %d bytes decode", seed, i, n, len(b))
			}
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	nest := func(n int) *Request {
		txn := &kv.TxnRequest{}
		for range n - 1 {
			txn = &kv.TxnRequest{Success: []kv.Op{{Txn: txn}}}
		}
		return &Request{Txn: txn}
	}
	if _, _, err := decodeAll(group(t, GroupHeader{}, nest(maxDepth))); err != nil {
		t.Errorf("depth %d: %v", maxDepth, err)
	}
	before := []byte("before")
	got, err := AppendRequest(before, nest(maxDepth+1))
	if !errors.Is(err, kv.ErrRequestTooLarge) || !bytes.Equal(got, before) {
		t.Errorf("depth %d: %q, %v", maxDepth+1, got, err)
	}
	if got, err := AppendRequest(before, &Request{}); err == nil || !bytes.Equal(got, before) {
		t.Errorf("an empty request: %q, %v", got, err)
	}
}

func TestDecoderRefuses(t *testing.T) {
	good := group(t, GroupHeader{}, &Request{Put: &kv.PutRequest{Key: []byte("k"), Value: []byte("v")}})
	for name, change := range map[string]func(b []byte) []byte{
		"magic":          func(b []byte) []byte { b[0] = 'X'; return b },
		"time":           func(b []byte) []byte { b[timeOffset+7] = 1; return b },
		"reserved":       func(b []byte) []byte { b[3] = 1; return b },
		"count too high": func(b []byte) []byte { b[4] = 2; return b },
		"count too low":  func(b []byte) []byte { b[4] = 0; return b },
		"count huge":     func(b []byte) []byte { b[7] = 0xff; return b },
		"length":         func(b []byte) []byte { b[HeaderSize]++; return b },
		"flags":          func(b []byte) []byte { b[HeaderSize+5] = 4; return b },
		"two identities": func(b []byte) []byte { b[HeaderSize+5] = 3; return b },
		"no identity":    func(b []byte) []byte { b[HeaderSize+5] = 1; return b },
		"put flags":      func(b []byte) []byte { b[HeaderSize+6] = 8; return b },
		"trailing":       func(b []byte) []byte { return append(b, 0) },
		"empty":          func(b []byte) []byte { return nil },
	} {
		if _, _, err := decodeAll(change(bytes.Clone(good))); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for at, want := range map[int]string{2: "63, this program knows 1", HeaderSize + 4: "request kind 63, this program knows the requests of level 1"} {
		b := bytes.Clone(good)
		b[at] = 63
		if _, _, err := decodeAll(b); !errors.Is(err, ErrVersion) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("a newer version: %v, want %s", err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	g := generator{rand.New(rand.NewPCG(1, 2))}
	for range 20 {
		f.Add(group(f, GroupHeader{Proposer: 1, Sequence: 2}, g.request(), g.request()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, reqs, err := decodeAll(b)
		if err != nil {
			return
		}
		if got := group(t, h, reqs...); !bytes.Equal(got, b) {
			t.Errorf("%x decodes, and encodes to %x", b, got)
		}
	})
}

// generator makes random requests, with nil for whatever is empty.
type generator struct{ *rand.Rand }

func (g generator) bytes() []byte {
	n := []int{0, 1, 1, 2, 5, 200}[g.IntN(6)]
	if n == 0 {
		return nil
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + g.IntN(3))
	}
	return b
}

func (g generator) bool() bool { return g.IntN(2) == 0 }

func (g generator) int() int64 {
	switch g.IntN(4) {
	case 0:
		return 0
	case 1:
		return int64(g.Uint64())
	}
	return g.Int64N(300) - 20
}

func (g generator) put() *kv.PutRequest {
	return &kv.PutRequest{Key: g.bytes(), Value: g.bytes(), Lease: g.int(), PrevKV: g.bool(), IgnoreValue: g.bool(), IgnoreLease: g.bool()}
}

func (g generator) del() *kv.DeleteRangeRequest {
	return &kv.DeleteRangeRequest{Key: g.bytes(), End: g.bytes(), PrevKV: g.bool()}
}

func (g generator) rng() *kv.RangeRequest {
	r := &kv.RangeRequest{Key: g.bytes(), End: g.bytes(), KeysOnly: g.bool(), CountOnly: g.bool(), Serializable: g.bool()}
	if g.bool() {
		r.Limit, r.Revision = g.int(), g.int()
		r.Sort, r.Order = kv.SortTarget(g.IntN(6)-1), kv.SortOrder(g.Uint32())
		r.MinModRevision, r.MaxCreateRevision = g.int(), g.int()
	}
	return r
}

func (g generator) txn(depth int) *kv.TxnRequest {
	r := &kv.TxnRequest{Success: g.ops(depth), Failure: g.ops(depth)}
	for range g.IntN(3) {
		c := kv.Compare{Key: g.bytes(), End: g.bytes(), Target: kv.CompareTarget(g.IntN(6)), Result: kv.CompareResult(g.IntN(5))}
		if c.Target == kv.CompareValue {
			c.Value = g.bytes()
		} else {
			c.Number = g.int()
		}
		r.Compare = append(r.Compare, c)
	}
	return r
}

func (g generator) ops(depth int) []kv.Op {
	var ops []kv.Op
	for range g.IntN(4) {
		switch n := g.IntN(5); {
		case n == 0:
			ops = append(ops, kv.Op{Put: g.put()})
		case n == 1:
			ops = append(ops, kv.Op{Range: g.rng()})
		case n == 2:
			ops = append(ops, kv.Op{Delete: g.del()})
		case n == 3 && depth > 0:
			ops = append(ops, kv.Op{Txn: g.txn(depth - 1)})
		default:
			ops = append(ops, kv.Op{})
		}
	}
	return ops
}

func (g generator) request() *Request {
	r := &Request{}
	switch g.IntN(4) {
	case 0:
		r.Identity = auth.Identity{User: string(g.bytes()), Revision: g.Uint64N(1 << 40)}
	case 1:
		r.Identity.Member = true
	}
	switch g.IntN(14) {
	case 12:
		r.Archive = &lineage.Archive{Place: lineage.PlaceOf(string(g.bytes())), ID: lineage.ID{byte(g.Uint32())}}
	case 13:
		r.Claim = &lineage.Claim{Term: g.Uint64N(4), Restart: g.bool()}
		for i := range r.Claim.ID {
			r.Claim.ID[i] = byte(g.Uint32())
		}
	case 11:
		r.Version = &kv.VersionChange{Op: kv.VersionOp(1 + g.IntN(3)), Version: kv.Version{Major: g.Uint32(), Minor: uint32(g.IntN(9))}}
	case 10:
		r.Auth = &kv.AuthRequest{Op: kv.AuthOp(1 + g.IntN(int(kv.LastAuthOp))), User: string(g.bytes()), Role: string(g.bytes()),
			Hash: string(g.bytes()), NoPassword: g.bool(), TokenHash: string(g.bytes()), Revision: g.Uint64(),
			Permission: kv.Permission{Type: kv.PermissionType(int32(g.Uint32())), Key: g.bytes(), End: g.bytes()}}
		if r.Auth.Op == kv.TokensEnd {
			r.Auth.Index, r.Auth.Revision = r.Auth.Revision, 0
		}
	case 6, 7, 8, 9:
		g.lease(r)
	case 0:
		r.Put = g.put()
	case 1:
		r.DeleteRange = g.del()
	case 2:
		r.Txn = g.txn(3)
	case 3:
		r.Compact = &kv.CompactRequest{Revision: g.int(), Physical: g.bool()}
	case 4:
		r.Attributes = &cluster.Member{ID: g.Uint64(), Name: string(g.bytes()), Level: g.Uint64() % 3}
		for range g.IntN(3) {
			r.Attributes.ClientURLs = append(r.Attributes.ClientURLs, string(g.bytes()))
		}
	case 5:
		r.Alarm = &kv.AlarmChange{Alarm: kv.Alarm{MemberID: g.Uint64N(3), Type: kv.AlarmType(g.IntN(5) - 1)}, Clear: g.IntN(3) > 0}
	}
	return r
}
