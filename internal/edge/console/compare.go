package console

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/health"
	"vigil/internal/kv"
)

// Comparison is a member's answer for a comparison of data. Members send it to each other as JSON.
type Comparison struct {
	// Status is an encoded etcdserverpb.StatusResponse. Hash is an encoded HashKVResponse that was
	// made after Status.
	Status []byte `json:"status"`
	Hash   []byte `json:"hash"`
}

// ComparisonQuery asks a member for a Comparison. Members send it to each other as JSON.
type ComparisonQuery struct {
	Revision int64 `json:"revision"`
	// Rights is the revision of users and roles that permits the reader to see the answer.
	Rights uint64 `json:"rights"`
}

// NewComparison encodes a status and the hash that was made after it.
func NewComparison(st *etcdserverpb.StatusResponse, res kv.HashResult) (c *Comparison, err error) {
	c = new(Comparison)
	if c.Status, err = proto.Marshal(st); err != nil {
		return nil, err
	}
	h := st.GetHeader()
	c.Hash, err = proto.Marshal(&etcdserverpb.HashKVResponse{Header: &etcdserverpb.ResponseHeader{ClusterId: h.GetClusterId(), MemberId: h.GetMemberId(),
		Revision: res.Revision, RaftTerm: h.GetRaftTerm()}, Hash: res.Hash,
		CompactRevision: res.CompactRevision, HashRevision: res.HashRevision})
	return c, err
}

// DecodeComparison decodes the answer of another member.
func DecodeComparison(b []byte) (*Comparison, error) {
	if len(b) > maxSample {
		return nil, fmt.Errorf("a comparison of %d bytes, at most %d", len(b), maxSample)
	}
	c := new(Comparison)
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("a comparison: %w", err)
	}
	return c, nil
}

// compared interprets a member's answer, or the error that came instead.
func (c *Comparison) compared(err error) health.Compared {
	out := health.Compared{Err: err}
	if err != nil {
		return out
	}
	st, hash := new(etcdserverpb.StatusResponse), new(etcdserverpb.HashKVResponse)
	if out.Err = proto.Unmarshal(c.Status, st); out.Err == nil {
		out.Err = proto.Unmarshal(c.Hash, hash)
	}
	if out.Err == nil {
		out.Later, out.Hash = st, hash
	}
	return out
}

// compareTime limits the duration of a comparison.
const compareTime = 10 * time.Minute

// comparing is a line in the stream of a comparison. The first has the members and the revision,
// each later one a member's hash, and the last the result.
type comparing struct {
	Revision int64            `json:"revision,omitempty"`
	Members  []comparedMember `json:"members,omitempty"`
	Member   *comparedMember  `json:"member,omitempty"`
	Result   *comparedResult  `json:"result,omitempty"`
}

// comparedMember is a member whose data are compared. Without a hash and an error, the member is
// still reading.
type comparedMember struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Hash    *int64 `json:"hash,omitempty"`
	Compact int64  `json:"compact,omitempty"`
	Error   string `json:"error,omitempty"`
}

// comparedResult is the result of the data check of the command doctor.
type comparedResult struct {
	Findings  []health.Finding   `json:"findings"`
	Unchecked []health.Unchecked `json:"not_checked"`
}

// serveCompare compares the members' data at the newest revision that all of them have, as the
// command doctor does.
func (c *Console) serveCompare(r *request, out *lines) error {
	if err := c.adminOnly(r,
		"only users with the role root may compare the data of the members"); err != nil {
		return err
	}
	if !c.comparing.TryLock() {
		return &failure{Status: http.StatusServiceUnavailable, Code: "unavailable",
			Text: "somebody else is comparing the data of the members",
			Next: "wait until that has ended"}
	}
	defer c.comparing.Unlock()
	list, err := c.cluster.MemberList(r.ctx, &etcdserverpb.MemberListRequest{Linearizable: false})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, compareTime)
	defer cancel()
	slices.SortFunc(list.Members, byName)
	e := c.examination(list.Members, c.sampleAll(ctx, list.Members))
	e.Omit, e.Data = nil, make([]health.Compared, len(e.Readings))
	revision, answering := int64(math.MaxInt64), 0
	first := comparing{Members: []comparedMember{}}
	for i := range e.Readings {
		x := &e.Readings[i]
		m := comparedMember{ID: hexadecimal(x.Advertised), Name: e.NameOf(x)}
		if x.Status == nil {
			m.Error = x.StatusErr.Error()
		} else {
			revision = min(revision, x.Status.Header.GetRevision())
			first.Revision = revision
			answering++
		}
		first.Members = append(first.Members, m)
	}
	if err := out.send(first); err != nil {
		return err
	}
	if answering > 1 {
		if err := c.compareAll(ctx, e, revision, out); err != nil {
			return err
		}
	}
	d, result := e.Diagnose(), comparedResult{[]health.Finding{}, []health.Unchecked{}}
	for _, f := range d.Findings {
		if f.Check == "data" {
			result.Findings = append(result.Findings, f)
		}
	}
	for _, u := range d.Unchecked {
		if u.Check == "data" || u.Check == "" {
			result.Unchecked = append(result.Unchecked, u)
		}
	}
	return out.send(comparing{Result: &result})
}

// compareAll asks all answering members concurrently, and sends each answer.
func (c *Console) compareAll(ctx context.Context, e *health.Examination, revision int64,
	out *lines) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	done := make(chan int, len(e.Readings))
	asked := 0
	for i := range e.Readings {
		if st := e.Readings[i].Status; st == nil || st.IsLearner {
			continue
		}
		asked++
		all.Go(func() {
			answer, err := c.Compare(ctx, e.Readings[i].Advertised, revision)
			e.Data[i] = answer.compared(unanswered(err))
			done <- i
		})
	}
	beats := time.NewTicker(beatInterval)
	defer beats.Stop()
	for asked > 0 {
		var i int
		select {
		case i = <-done:
			asked--
		case <-beats.C:
			if err := out.send(c.beat()); err != nil {
				return err
			}
			continue
		}
		m := comparedMember{ID: hexadecimal(e.Readings[i].Advertised),
			Name: e.NameOf(&e.Readings[i])}
		if x := &e.Data[i]; x.Err != nil {
			m.Error = x.Err.Error()
		} else {
			hash := int64(x.Hash.Hash)
			m.Hash, m.Compact = &hash, x.Hash.CompactRevision
		}
		if err := out.send(comparing{Member: &m}); err != nil {
			return err
		}
	}
	return nil
}

// sampleAll measures members concurrently.
func (c *Console) sampleAll(ctx context.Context,
	members []*etcdserverpb.Member) map[uint64]*reading {
	ctx, cancel := context.WithTimeout(ctx, sampleInterval)
	defer cancel()
	found := make([]*reading, len(members))
	var all sync.WaitGroup
	for i, m := range members {
		all.Go(func() { found[i] = c.sample(ctx, m.ID) })
	}
	all.Wait()
	out := map[uint64]*reading{}
	for i, m := range members {
		out[m.ID] = found[i]
	}
	return out
}
