package console

import (
	"fmt"
	"net/http"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"vigil/internal/edge/console/decode"
)

// maxShown limits the bytes of a value that are shown. The whole value is returned on request.
const maxShown = 256 << 10

// valueView is a key with its value.
type valueView struct {
	keyView
	Size  int           `json:"size"`
	Value []byte        `json:"value"`
	Cut   bool          `json:"cut,omitempty"`
	Views []decode.View `json:"views"`
}

func valueOf(kv *mvccpb.KeyValue, most int) *valueView {
	shown := kv.Value[:min(len(kv.Value), most)]
	return &valueView{keyView: viewKey(kv), Size: len(kv.Value), Value: shown,
		Cut: len(shown) < len(kv.Value), Views: decode.Views(shown)}
}

// single is a key at a revision. Key is missing if it does not exist there.
type single struct {
	Revision int64      `json:"revision"`
	Now      int64      `json:"now"`
	Key      *valueView `json:"key,omitempty"`
	When     span       `json:"when"` // when the key was modified
}

// serveKey returns a key with its value.
func (c *Console) serveKey(r *request) (any, error) {
	key, err := r.bytes("key")
	if err != nil {
		return nil, err
	}
	rev, err := r.number("rev", 0, 1<<62)
	if err != nil {
		return nil, err
	}
	res, err := c.kv.Range(r.ctx, &etcdserverpb.RangeRequest{Key: key, Revision: rev})
	if err != nil {
		return nil, err
	}
	out := &single{Revision: rev, Now: res.Header.Revision}
	if rev == 0 {
		out.Revision = res.Header.Revision
	}
	most := maxShown
	if r.URL.Query().Has("whole") {
		most = c.MaxRequestBytes
	}
	if len(res.Kvs) > 0 {
		out.Key = valueOf(res.Kvs[0], most)
		spans, err := c.times.spans(r.ctx, []int64{out.Key.Mod})
		if err != nil {
			return nil, err
		}
		out.When = spans[0]
	}
	return out, nil
}

// servePut writes a key if its last change is still the one that the reader saw: 0 for a key that
// did not exist.
func (c *Console) servePut(r *request) (any, error) {
	var in struct {
		Key, Value []byte
		Mod        *int64
		Lease      string
	}
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if len(in.Key) == 0 || in.Mod == nil {
		return nil, badRequest("key and mod are required")
	}
	put := &etcdserverpb.PutRequest{Key: in.Key, Value: in.Value}
	if in.Lease != "" {
		n, err := id("lease", in.Lease)
		if err != nil {
			return nil, err
		}
		put.Lease = int64(n)
	}
	return c.changeKey(r, in.Key, *in.Mod,
		&etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}})
}

// changeKey runs an operation if the last change of a key is the expected one.
func (c *Console) changeKey(r *request, key []byte, mod int64,
	op *etcdserverpb.RequestOp) (any, error) {
	res, err := c.kv.Txn(r.ctx, &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{Key: key, Target: etcdserverpb.Compare_MOD,
			Result:      etcdserverpb.Compare_EQUAL,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: mod}}},
		Success: []*etcdserverpb.RequestOp{op},
		Failure: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: &etcdserverpb.RangeRequest{Key: key}}}},
	})
	if err != nil {
		return nil, err
	}
	if !res.Succeeded {
		var current *mvccpb.KeyValue
		if found := res.Responses[0].GetResponseRange(); found != nil && len(found.Kvs) > 0 {
			current = found.Kvs[0]
		}
		return nil, conflict(current)
	}
	return map[string]int64{"revision": res.Header.Revision}, nil
}

// serveDelete deletes a key that has not changed, or all keys of a range if none has changed since
// a revision.
func (c *Console) serveDelete(r *request) (any, error) {
	var in struct {
		Key, End []byte
		Prefix   bool
		Mod      *int64
		Since    int64 // the revision at which the keys were counted
	}
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	if !in.Prefix && len(in.End) == 0 {
		if in.Mod == nil || len(in.Key) == 0 {
			return nil, badRequest("key and mod are required")
		}
		return c.changeKey(r, in.Key, *in.Mod, deletion(in.Key, nil))
	}
	if in.Since < 1 {
		return nil, badRequest("since is required: the revision at which the keys were counted")
	}
	key, end := from(in.Key), in.End
	if in.Prefix {
		end = endOf(in.Key)
	}
	res, err := c.kv.Txn(r.ctx, &etcdserverpb.TxnRequest{
		Compare: []*etcdserverpb.Compare{{Key: key, RangeEnd: end, Target: etcdserverpb.Compare_MOD,
			Result:      etcdserverpb.Compare_LESS,
			TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: in.Since + 1}}},
		Success: []*etcdserverpb.RequestOp{deletion(key, end)},
	})
	if err != nil {
		return nil, err
	}
	if !res.Succeeded {
		return nil, &failure{Status: http.StatusConflict, Code: "conflict",
			Text: fmt.Sprintf("a key of the range was written after revision %d; nothing was deleted", in.Since),
			Next: "count again, and delete again"}
	}
	return map[string]int64{"revision": res.Header.Revision,
		"deleted": res.Responses[0].GetResponseDeleteRange().Deleted}, nil
}

func deletion(key, end []byte) *etcdserverpb.RequestOp {
	return &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{RequestDeleteRange: &etcdserverpb.DeleteRangeRequest{Key: key, RangeEnd: end}}}
}
