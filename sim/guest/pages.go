//go:build wasip1

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

// pageKeys is the number of keys that are listed in pages.
const pageKeys = 30

// pages lists keys that change meanwhile: in pages at one revision, and with all options.
func pages(c *setup.Client, rng *rand.Rand) error {
	go changePages(c, rand.New(rand.NewPCG(rng.Uint64(), 0)))
	b := &bare{c: c, id: c.First + 90, rng: rng}
	for goesOn(c, c.Stop) {
		time.Sleep(time.Duration(rng.Int64N(2 * c.Think)))
		b.choose()
		if rng.IntN(2) == 0 {
			b.listAll()
		} else {
			l := randomListing(rng, b.rev)
			b.list(&l)
		}
	}
	return nil
}

// changePages puts and deletes the listed keys.
func changePages(c *setup.Client, rng *rand.Rand) {
	b := &bare{c: c, rng: rng}
	for made := 0; goesOn(c, c.Stop); made++ {
		b.choose()
		key := pageKey(rng.IntN(pageKeys))
		_ = b.call(func(ctx context.Context) error {
			if rng.IntN(8) == 0 {
				_, err := b.kv.DeleteRange(ctx,
					&etcdserverpb.DeleteRangeRequest{Key: key,
						RangeEnd: pageKey(rng.IntN(pageKeys))})
				return err
			}
			_, err := b.kv.Put(ctx,
				&etcdserverpb.PutRequest{Key: key, Value: fmt.Appendf(nil, "%d-%d", c.First, made)})
			return err
		})
		time.Sleep(time.Duration(rng.Int64N(c.Think)))
	}
}

func pageKey(n int) []byte { return fmt.Appendf(nil, "p/%02d", n) }

// listAll lists all keys in pages at the revision of the first page.
func (b *bare) listAll() {
	l := check.Listing{From: "p/", To: "p0", Limit: 1 + b.rng.Int64N(12),
		Serializable: b.rng.IntN(2) == 0, KeysOnly: b.rng.IntN(4) == 0}
	if b.rng.IntN(2) == 0 && b.rev > 20 {
		l.Rev = b.rev - b.rng.Int64N(20)
	}
	for {
		o := b.list(&l)
		if o.Outcome != check.Acked || !o.Page.More {
			return
		}
		if l.Rev == 0 {
			l.Rev = o.Rev
		}
		l.From = o.Found[len(o.Found)-1].Key + "\x00"
		time.Sleep(time.Duration(b.rng.IntN(300)) * time.Millisecond)
		if b.rng.IntN(4) == 0 {
			b.choose() // the next page is another member's
		}
	}
}

// randomListing draws the options of a list. rev is a recent revision.
func randomListing(rng *rand.Rand, rev int64) check.Listing {
	a, z := rng.IntN(pageKeys/2), pageKeys/2+rng.IntN(pageKeys/2)
	l := check.Listing{From: string(pageKey(a)), To: string(pageKey(z)),
		Serializable: rng.IntN(2) == 0, KeysOnly: rng.IntN(4) == 0, CountOnly: rng.IntN(5) == 0,
		Descend: rng.IntN(2) == 0,
		By: []check.Order{check.ByKey, check.ByVersion, check.ByCreate, check.ByMod,
			check.ByValue}[rng.IntN(5)]}
	recent := func() int64 { return max(1, rev-rng.Int64N(60)) }
	if rng.IntN(3) == 0 {
		l.Rev = recent()
	}
	if rng.IntN(2) == 0 {
		l.Limit = 1 + rng.Int64N(10)
	}
	switch rng.IntN(8) {
	case 0:
		l.MinMod = recent()
	case 1:
		l.MaxMod = recent()
	case 2:
		l.MinCreate = recent()
	case 3:
		l.MaxCreate = recent()
	}
	return l
}

// list makes a list and reports it.
func (b *bare) list(l *check.Listing) check.Op {
	r := &etcdserverpb.RangeRequest{Key: []byte(l.From), RangeEnd: []byte(l.To), Revision: l.Rev,
		Limit: l.Limit, Serializable: l.Serializable,
		KeysOnly: l.KeysOnly, CountOnly: l.CountOnly, MinModRevision: l.MinMod,
		MaxModRevision:    l.MaxMod,
		MinCreateRevision: l.MinCreate, MaxCreateRevision: l.MaxCreate,
		SortTarget: sortTargets[l.By], SortOrder: etcdserverpb.RangeRequest_ASCEND}
	switch {
	case l.Descend:
		r.SortOrder = etcdserverpb.RangeRequest_DESCEND
	case l.By == "":
		r.SortOrder = etcdserverpb.RangeRequest_NONE
	}
	copied := *l
	return b.do(check.Op{Kind: check.Page, Page: &copied},
		func(ctx context.Context, o *check.Op) error {
			a, err := b.kv.Range(ctx, r)
			if err != nil {
				return err
			}
			o.Rev, o.Page.Count, o.Page.More = a.Header.Revision, a.Count, a.More
			for _, kv := range a.Kvs {
				o.Found = append(o.Found, *pbItem(kv))
			}
			return nil
		})
}

var sortTargets = map[check.Order]etcdserverpb.RangeRequest_SortTarget{
	check.ByVersion: etcdserverpb.RangeRequest_VERSION,
	check.ByCreate:  etcdserverpb.RangeRequest_CREATE,
	check.ByMod:     etcdserverpb.RangeRequest_MOD, check.ByValue: etcdserverpb.RangeRequest_VALUE,
}

// passingRead reports whether the error of a read is that of a revision which is compacted, or
// which the member does not have yet.
func passingRead(err error) bool {
	m := status.Convert(err).Message()
	return m == rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted) ||
		m == rpctypes.ErrorDesc(rpctypes.ErrGRPCFutureRev)
}
