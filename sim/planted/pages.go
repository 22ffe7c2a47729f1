package planted

// pages are mistakes of ranges with options, and of rejected requests.
var pages = []Mistake{
	{Name: "present-page", Profile: "api",
		Promise: "a page at a pinned revision is of that revision", Edits: []Edit{
			{"internal/store/mvcc/range.go", "f := finder{v: v, r: r, at: at,",
				"f := finder{v: v, r: r, at: max(at, v.rev-1),"},
		}},
	{Name: "present-count", Profile: "api", Promise: "the count of a list is that of its revision",
		Needs: "pages", Edits: []Edit{
			{"internal/store/mvcc/range.go", "if at >= v.live {", "if at > 0 {"},
		}},
	{Name: "no-more", Profile: "api", Promise: "a page says that there are more",
		Needs: "pages", Edits: []Edit{
			{"internal/store/mvcc/range.go", "p.find = int(r.Limit) + 1", "p.find = int(r.Limit)"},
		}},
	{Name: "exclusive-bound", Profile: "api", Promise: "bounds of revisions are inclusive",
		Needs: "pages", Edits: []Edit{
			{"internal/store/mvcc/range.go", "s.Rev.Main < r.MinModRevision",
				"s.Rev.Main <= r.MinModRevision"},
		}},
	{Name: "wrong-error", Profile: "api", Promise: "a rejected request has the error of etcd",
		Needs: "bare", Edits: []Edit{
			{"internal/edge/rpc/apierror/apierror.go",
				"{kv.ErrFutureRev, rpctypes.ErrGRPCFutureRev}",
				"{kv.ErrFutureRev, rpctypes.ErrGRPCCompacted}"},
		}},
}
