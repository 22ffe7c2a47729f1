package planted

// watch are mistakes of watches in the members.
var watch = []Mistake{
	{Name: "skipped-event", Profile: "api",
		Promise: "a watcher receives all events from its revision on", Edits: []Edit{
			{"internal/store/watch/stream.go", "w.next = w.start\n", "w.next = w.start + 1\n"},
		}},
	{Name: "early-progress",
		Promise: "after progress no event up to its revision follows", Edits: []Edit{
			{"internal/store/watch/stream.go",
				"if h.mu.matched == rev {\n\t\th.answerProgress(s, 1)\n",
				"if rev > 0 {\n\t\ts.mu.Lock()\n\t\ts.putProgress(InvalidID, rev)\n\t\ts.mu.Unlock()\n"},
		}},
	{Name: "behind-to-live", Profile: "watch",
		Promise: "a watcher that has caught up receives the next event",
		Needs:   "crowd", Edits: []Edit{
			{"internal/store/watch/catchup.go", "if g.pos <= h.mu.claimed ||",
				"if g.pos < h.mu.claimed ||"},
		}},
	{Name: "slow-reader-skips", Profile: "watch",
		Promise: "a watcher that did not fit continues where it stopped",
		Needs:   "crowd", Edits: []Edit{
			{"internal/store/watch/deliver.go", "w.next = d.stalls[i].next\n",
				"w.next = d.stalls[i].next + 1\n"},
		}},
	{Name: "silent-compaction", Profile: "watch",
		Promise: "a watcher that needs a compacted revision is canceled",
		Needs:   "crowd", Edits: []Edit{
			{"internal/store/watch/catchup.go", "return w.next < compacted }",
				"return w.next < 0 }"},
		}},
	{Name: "tick-while-behind", Profile: "watch",
		Promise: "a watcher that is behind has no progress", Needs: "crowd", Edits: []Edit{
			{"internal/store/watch/progress.go",
				"if w.isQuiet() && w.group == h.mu.live && w.start <= rev && w.next <= rev+1 {",
				"if w.isQuiet() && w.start <= rev {"},
		}},
	{Name: "progress-while-behind", Profile: "watch",
		Promise: "a stream with a watcher behind has no progress", Needs: "crowd", Edits: []Edit{
			{"internal/store/watch/progress.go", "if s.closed || s.active == 0 || s.behind > 0 {",
				"if s.closed || s.active == 0 {"},
			{"internal/store/watch/stream.go", "if s.closed || s.active == 0 || s.behind > 0 {",
				"if s.closed || s.active == 0 {"},
		}},
	{Name: "other-filter", Profile: "api", Promise: "a filter leaves out events of its kind only",
		Needs: "watch options", Edits: []Edit{
			{"internal/store/watch/batch.go",
				"if b.events[i].Delete && f&noDelete != 0 || !b.events[i].Delete && f&noPut != 0 {",
				"if b.events[i].Delete && f&noPut != 0 || !b.events[i].Delete && f&noDelete != 0 {"},
		}},
	{Name: "late-prev-kv", Profile: "api",
		Promise: "prev_kv is the value before the event", Edits: []Edit{
			{"internal/store/watch/deliver.go", "d.hub.src.Get(e.Key, e.Rev.Main-1)",
				"d.hub.src.Get(e.Key, e.Rev.Main-2)"},
		}},
	{Name: "lost-fragment", Profile: "api", Promise: "the fragments of a revision are all of it",
		Needs: "watch options", Edits: []Edit{
			{"internal/store/watch/queue.go", "\t\ts.put(r)\n\t\tevents = events[n:]",
				"\t\tif r.more {\n\t\t\ts.put(r)\n\t\t}\n\t\tevents = events[n:]"},
		}},
	{Name: "split-revision", Profile: "api",
		Promise: "the events of a revision are in one message", Edits: []Edit{
			{"internal/store/watch/batch.go", "for end < len(v.events) && v.rev(end) == rev {",
				"for end == k {"},
			{"internal/store/watch/batch.go", "revs >= o.ResponseRevisions) {",
				"revs >= o.ResponseRevisions || v.rev(k-1) == rev) {"},
		}},
	{Name: "future-start-ignored", Profile: "api",
		Promise: "a watch from a future revision receives nothing below it",
		Needs:   "watch options", Edits: []Edit{
			{"internal/store/watch/stream.go", "w.next = w.start\n",
				"w.next = min(w.start, rev+1)\n"},
		}},
	{Name: "start-skips", Profile: "api",
		Promise: "a new watch receives the first event after its creation",
		Needs:   "watch options", Edits: []Edit{
			{"internal/store/watch/stream.go", "w.next = rev + 1\n", "w.next = rev + 2\n"},
		}},
	{Name: "mirror-ahead", Profile: "api",
		Promise: "a mirror's view equals the store at its revision",
		Needs:   "mirrors", Edits: []Edit{
			{"client/mirror/mirror.go", "view.revision, m.store = listing.Revision(),",
				"view.revision, m.store = listing.Revision()+1,"},
		}},
	{Name: "endless-queue", Profile: "watch",
		Promise: "the queue of a stream that is not read is bounded", Needs: "crowd", Edits: []Edit{
			{"internal/store/watch/queue.go",
				"return s.mu.queued == 0 || s.mu.queued+n <= s.hub.limit()", "return n >= 0"},
		}},
	{Name: "stream-goroutine", Promise: "a stopped member leaves no goroutine", Edits: []Edit{
		{"internal/store/watch/hub.go", "h.finished.Go(h.tickLoop)\n",
			"go h.tickLoop()\n\tgo func() { select {} }()\n"},
	}},
}
