package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// text is a key or value as vigilctl dump writes it: a string, or an object with base64 if the
// bytes are not UTF-8.
type text []byte

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) {
	if utf8.Valid(t) {
		return json.Marshal(string(t))
	}
	return json.Marshal(map[string][]byte{"base64": t})
}

// wholeText matches a JSON string without half a surrogate pair: json.Unmarshal replaces such a
// half with another character.
var wholeText = regexp.MustCompile(`(?is)^"([^\\]|\\[^u]|\\u([0-9a-ce-f][0-9a-f]{3}|d[0-7][0-9a-f]{2}|d[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}))*"$`)

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		var s string
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
		if !utf8.Valid(b) || strings.ContainsRune(s, utf8.RuneError) && !wholeText.Match(b) {
			return errors.New("the text has bytes or halves of characters that are not UTF-8: write an object with base64")
		}
		*t = text(s)
		return nil
	}
	var coded struct{ Base64 *[]byte }
	if err := json.Unmarshal(b, &coded); err != nil || coded.Base64 == nil {
		return fmt.Errorf("a text, or an object with base64, is expected")
	}
	*t = *coded.Base64
	return nil
}

// portable is a line of an export or import. An import ignores the other fields of a dump.
type portable struct {
	Key     *text  `json:"key,omitempty"`
	Value   *text  `json:"value,omitempty"`
	Create  int64  `json:"create_revision,omitempty"`
	Mod     int64  `json:"mod_revision,omitempty"`
	Version int64  `json:"version,omitempty"`
	Lease   string `json:"lease,omitempty"`
}

// exportAhead is how many keys an export reads at once, with their values.
const exportAhead = 20

// exportTime limits the duration of an export.
const exportTime = 10 * time.Minute

// serveExport streams the keys with a prefix as JSON lines, all at one revision.
func (c *Console) serveExport(r *request, out *lines) error {
	prefix, err := r.bytes("prefix")
	if err != nil {
		return err
	}
	rev, err := r.number("rev", 0, 1<<62)
	if err != nil {
		return err
	}
	key, end := from(prefix), endOf(prefix)
	for until := time.Now().Add(exportTime); time.Now().Before(until); {
		if key, rev, err = c.exportPart(r.ctx, key, end, rev, out); err != nil || key == nil {
			if f := (*failure)(nil); errors.As(err, &f) && f.Code == "leaderless" {
				f.Next += "; a snapshot, in the view of members, needs none"
			}
			return err
		}
	}
	return badRequest("an export may take at most %v: export parts", exportTime)
}

// exportPart sends the first keys of a range. It returns where the next part begins, nil at the
// end, and the revision of all parts. The memory of the part counts as in use until it is sent.
func (c *Console) exportPart(ctx context.Context, key, end []byte, rev int64,
	out *lines) (next []byte, at int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	res, err := c.kv.Range(ctx,
		&etcdserverpb.RangeRequest{Key: key, RangeEnd: end, Revision: rev, Limit: exportAhead})
	if err != nil {
		return nil, 0, err
	}
	if at = rev; at == 0 {
		at = res.Header.Revision
	}
	for _, kv := range res.Kvs {
		v := viewKey(kv)
		k, x := text(kv.Key), text(kv.Value)
		if err := out.send(portable{&k, &x, v.Create, v.Mod, v.Version, v.Lease}); err != nil {
			return nil, 0, err
		}
	}
	if !res.More {
		return nil, at, nil
	}
	return append(slices.Clone(res.Kvs[len(res.Kvs)-1].Key), 0), at, nil
}

// imported is the result of an import.
type imported struct {
	Written int64 `json:"written"`
	// Existing counts the keys that existed and were not replaced.
	Existing int64 `json:"existing"`
	Ignored  int64 `json:"ignored"` // lines without a key, such as the header of a dump
}

// stopAt returns the error for a line. The lines before it stay imported.
func (done *imported) stopAt(line int, err error) error {
	f := *describe(err)
	f.Text, f.Imported = fmt.Sprintf("line %d: %s; what is before it was written",
		line, f.Text), done
	return &f
}

// serveImport writes keys from JSON lines. It replaces existing keys only if replace is set. It
// does not attach leases: they ended with the store that the lines are from. The browser divides a
// file into several bodies.
func (c *Console) serveImport(r *request) (any, error) {
	var in struct {
		Lines   string
		Replace bool
		Before  int // lines of the file before these
	}
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	out := &imported{}
	for i, line := range bytes.Split([]byte(in.Lines), []byte("\n")) {
		n := in.Before + i + 1
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var p portable
		if err := json.Unmarshal(line, &p); err != nil {
			return nil, out.stopAt(n, badRequest("%v", err))
		}
		if p.Key == nil || p.Value == nil {
			out.Ignored++
			continue
		}
		if len(*p.Key) == 0 {
			return nil, out.stopAt(n, badRequest("the key is empty"))
		}
		put := &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: *p.Key, Value: *p.Value}}}
		txn := &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{put}}
		if !in.Replace {
			txn.Compare = []*etcdserverpb.Compare{{Key: *p.Key, Target: etcdserverpb.Compare_MOD,
				Result:      etcdserverpb.Compare_EQUAL,
				TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: 0}}}
		}
		res, err := c.kv.Txn(r.ctx, txn)
		if err != nil {
			return nil, out.stopAt(n, err)
		}
		if res.Succeeded {
			out.Written++
		} else {
			out.Existing++
		}
	}
	return out, nil
}
