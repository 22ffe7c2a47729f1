package console

import (
	"bytes"
	"context"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Limits of lists of leases.
const (
	maxLeases    = 100  // in one answer
	maxLeaseKeys = 100  // of one lease in an answer
	maxLockScan  = 2000 // leases that are visited to find locks
	maxLocks     = 200  // in one answer
	maxWaiting   = 50   // of one lock
)

// leaseView is a lease with the keys that end with it.
type leaseView struct {
	ID       string   `json:"id"`
	TTL      int64    `json:"ttl"` // seconds, -1 if the lease has just ended
	Granted  int64    `json:"granted"`
	Keys     [][]byte `json:"keys"`
	KeyCount int      `json:"key_count"`
	Error    string   `json:"error,omitempty"`
}

// leasesView is a part of the leases, ordered by ID.
type leasesView struct {
	Total  int         `json:"total"`
	Leases []leaseView `json:"leases"`
	After  string      `json:"after,omitempty"`
}

// leaseIDs returns the IDs of all leases in ascending order.
func (c *Console) leaseIDs(r *request) ([]uint64, error) {
	list, err := c.lease.LeaseLeases(r.ctx, &etcdserverpb.LeaseLeasesRequest{})
	if err != nil {
		return nil, err
	}
	ids := make([]uint64, len(list.Leases))
	for i, l := range list.Leases {
		ids[i] = uint64(l.ID)
	}
	slices.Sort(ids)
	return ids, nil
}

// keysOfLease returns a lease with its keys. The caller uses the result as with rangeOnce.
func (c *Console) keysOfLease(ctx context.Context,
	n uint64) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return c.lease.LeaseTimeToLive(ctx,
		&etcdserverpb.LeaseTimeToLiveRequest{ID: int64(n), Keys: true})
}

func (c *Console) serveLeases(r *request) (any, error) {
	ids, err := c.leaseIDs(r)
	if err != nil {
		return nil, err
	}
	out := &leasesView{Total: len(ids), Leases: []leaseView{}}
	if s := r.URL.Query().Get("after"); s != "" {
		after, err := id("after", s)
		if err != nil {
			return nil, err
		}
		at, _ := slices.BinarySearch(ids, after)
		ids = ids[at:]
	}
	if len(ids) > maxLeases {
		out.After = hexadecimal(ids[maxLeases])
		ids = ids[:maxLeases]
	}
	left := room(maxPageBytes)
	for _, n := range ids {
		v := leaseView{ID: hexadecimal(n), Keys: [][]byte{}}
		res, err := c.keysOfLease(r.ctx, n)
		if err != nil {
			f := describe(err)
			if f.Code != "denied" {
				return nil, err
			}
			v.Error = "its keys are not yours to read"
		} else {
			v.TTL, v.Granted, v.KeyCount = res.TTL, res.GrantedTTL, len(res.Keys)
			for _, k := range res.Keys[:min(len(res.Keys), maxLeaseKeys)] {
				if left.reserve(len(k)) {
					v.Keys = append(v.Keys, k)
				}
			}
		}
		out.Leases = append(out.Leases, v)
	}
	return out, nil
}

// serveRevoke revokes a lease, which deletes its keys.
func (c *Console) serveRevoke(r *request) (any, error) {
	var in struct{ ID string }
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	n, err := id("lease", in.ID)
	if err != nil {
		return nil, err
	}
	if _, err := c.lease.LeaseRevoke(r.ctx,
		&etcdserverpb.LeaseRevokeRequest{ID: int64(n)}); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}

// claim is the key of a client that holds a lock or an election, or waits for it.
type claim struct {
	keyView
	Size int    `json:"size"`
	Text string `json:"text,omitempty"` // in an election: the leader's value
	span        // when the key was created
}

// lock is a prefix whose keys end with their leases' IDs, as client libraries write them for locks
// and elections. The oldest key is the holder's.
type lock struct {
	Name    []byte  `json:"name"`
	Holder  claim   `json:"holder"`
	Waiting []claim `json:"waiting"`
	// More is how many further clients wait.
	More int64 `json:"more,omitempty"`
}

// serveLocks finds locks and elections from the keys of leases.
func (c *Console) serveLocks(r *request) (any, error) {
	ids, err := c.leaseIDs(r)
	if err != nil {
		return nil, err
	}
	visited := ids[:min(len(ids), maxLockScan)]
	names, named, cut := map[string]bool{}, room(maxPageBytes), false
	for _, n := range visited {
		res, err := c.keysOfLease(r.ctx, n)
		if err != nil {
			if describe(err).Code == "denied" {
				continue
			}
			return nil, err
		}
		for _, k := range res.Keys[:min(len(res.Keys), maxLeaseKeys)] {
			name, ok := lockOf(k, n)
			if !ok || names[string(name)] {
				continue
			}
			if len(names) == maxLocks || !named.reserve(len(name)) {
				cut = true
				continue
			}
			names[string(name)] = true
		}
	}
	out, left := []lock{}, room(maxPageBytes)
	for name := range names {
		prefix := append([]byte(name), '/')
		list, err := c.rangeOnce(r.ctx,
			&etcdserverpb.RangeRequest{Key: prefix, RangeEnd: endOf(prefix), Limit: maxWaiting + 1,
				SortTarget: etcdserverpb.RangeRequest_CREATE,
				SortOrder:  etcdserverpb.RangeRequest_ASCEND})
		if err != nil {
			if describe(err).Code == "denied" {
				continue
			}
			return nil, err
		}
		l := lock{Name: []byte(name), Waiting: []claim{}}
		for i, kv := range list.Kvs {
			if !left.reserve(len(name) + len(kv.Key)) {
				list.Kvs = list.Kvs[:i]
				break
			}
			v := versionOf(kv, false)
			if x := (claim{v.keyView, v.Size, v.Text, span{}}); i == 0 {
				l.Holder = x
			} else {
				l.Waiting = append(l.Waiting, x)
			}
		}
		if len(list.Kvs) > 0 {
			l.More = list.Count - int64(len(list.Kvs))
			out = append(out, l)
		}
		cut = cut || len(list.Kvs) == 0 && list.Count > 0
	}
	slices.SortFunc(out, func(a, b lock) int { return bytes.Compare(a.Name, b.Name) })
	if err := c.times.dateLocks(r.ctx, out); err != nil {
		return nil, err
	}
	return map[string]any{"locks": out, "leases": len(ids), "visited": len(visited),
		"cut": cut}, nil
}

// dateLocks sets since when clients hold locks or wait for them.
func (t times) dateLocks(ctx context.Context, locks []lock) error {
	var all []*claim
	for i := range locks {
		all = append(all, &locks[i].Holder)
		for j := range locks[i].Waiting {
			all = append(all, &locks[i].Waiting[j])
		}
	}
	revisions := make([]int64, len(all))
	for i, x := range all {
		revisions[i] = x.Create
	}
	spans, err := t.spans(ctx, revisions)
	for i, s := range spans {
		all[i].span = s
	}
	return err
}

// lockOf returns the name of the lock to which a key belongs: the key ends with the ID of its
// lease.
func lockOf(key []byte, lease uint64) (name []byte, ok bool) {
	at := bytes.LastIndexByte(key, '/')
	if at < 1 {
		return nil, false
	}
	n, err := strconv.ParseUint(string(key[at+1:]), 16, 64)
	return key[:at], err == nil && n == lease
}
