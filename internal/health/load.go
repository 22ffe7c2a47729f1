package health

import (
	"fmt"
	"strings"
	"time"

	"vigil/internal/amount"
	"vigil/internal/spelling"
)

// checkFull finds full disks. The quota is another limit and raises an alarm.
func (e *Examination) checkFull(r *report) {
	e.measured(r, func(x *Reading, name string) {
		switch what, waits := x.DiskFull(); {
		case waits:
			next := "remove files that are not of the member, or enlarge the volume: it goes on within a second, without a restart. Deleting keys and compacting do not help, because they wait too"
			if e.spareable(x) {
				next += ". The other members serve without it: it may be stopped, and its data directory moved to a larger disk"
			}
			r.addFinding(Critical, name, what, next,
				"docs/operations/disks.md#committed-entries-wait")
		case what != "":
			r.addFinding(Critical, name, what,
				"free space on the volume of its data directory, or enlarge it; or delete keys and: vigilctl compaction REVISION. It accepts puts again within a second, without a restart", "")
		}
	})
}

// spareable reports whether the working voters other than this member form a majority.
func (e *Examination) spareable(x *Reading) bool {
	voters, others := 0, 0
	for _, m := range e.Members {
		if m.IsLearner {
			continue
		}
		voters++
		if o := e.reading(m); o != nil && o != x && o.Status.GetLeader() != 0 && !e.Foreign(o) {
			if _, waits := o.DiskFull(); !waits && o.FilesGone() == "" {
				others++
			}
		}
	}
	return others > voters/2
}

func (e *Examination) checkDamage(r *report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		gone := x.FilesGone()
		if gone == "" {
			continue
		}
		back, next := "put back what is gone, not a copy: its log says from where, and the member goes on by itself. Else ", ""
		if strings.Contains(gone, "it was deleted") {
			back = ""
		}
		switch {
		case strings.Contains(gone, "another process has locked"):
			next = "stop the other process that uses the data directory: the member goes on by itself"
		case e.spareable(x):
			next = back + "stop it, remove it from the cluster and add it again with an empty directory: the other members have its data"
		default:
			next = back + "do not stop it, because its open files are the last copy: vigilctl snapshot save FILE --endpoints " + spelling.QuoteWords(x.Endpoint) + ", then restore that"
		}
		r.addFinding(Critical, e.NameOf(x),
			"files of its data directory are gone, and it accepts no writes: "+gone, next,
			"docs/operations/disks.md#the-data-directory-is-gone")
	}
	e.measured(r, func(x *Reading, name string) {
		if n := x.Value(DamageFound); n > 0 {
			what := "damaged data were found at one place on its disk since it started"
			if n > 1 {
				what = fmt.Sprintf("damaged data were found at %.0f places on its disk since it started", n)
			}
			r.addFinding(Critical, name, what,
				"its log names file and offset. Check a copy of the directory: vigilctl check DIRECTORY; then replace the member and its disk", "")
		}
		if n := x.Value(Differences); n > 0 {
			r.addFinding(Critical, name,
				fmt.Sprintf("it found %.0f times, as the leader, that members have different data",
					n), nextDiffers, "docs/operations/corruption.md")
		}
	})
}

func (e *Examination) checkQuota(r *report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		if x.Status == nil {
			continue
		}
		quota, file, inUse := x.Quota(), x.Status.DbSize, x.Status.DbSizeInUse
		if used := float64(x.QuotaUsed()) / float64(max(quota, 1)); quota > 0 &&
			100*used >= e.Limits.Quota {
			s := Warning
			if 100*used >= e.Limits.QuotaCritical {
				s = Critical
			}
			r.addFinding(s, e.NameOf(x),
				fmt.Sprintf("%.0f%% of the quota of %s are used; at 100%% puts are rejected",
					100*used, amount.Bytes(quota)),
				"find the largest keys: vigilctl tree --sizes; delete, compact, or raise --quota-backend-bytes", "")
		}
		if quota == 0 {
			r.skipMember(e.NameOf(x), "its quota is not known")
		}
		if x.Metrics != nil && !x.IsVigil() && file-inUse > freeHigh && file > 2*inUse {
			r.addFinding(Note, e.NameOf(x),
				fmt.Sprintf("%s of the %s of its database are free", amount.Bytes(file-inUse),
					amount.Bytes(file)),
				"vigilctl defrag --endpoints "+spelling.QuoteWords(x.Endpoint)+
					" at a time of low load: the member does not serve during that time", "")
		}
	}
}

func (e *Examination) checkLag(r *report) {
	for i := range e.Readings {
		x := &e.Readings[i]
		if x.Status == nil || e.Foreign(x) {
			continue
		}
		if x.Metrics == nil {
			r.skipMember(e.NameOf(x), noMetrics)
		}
		if x.Stands() {
			r.addFinding(Critical, e.NameOf(x),
				"does none of its work: for an election timeout nothing was written to its raft log, or applied", "its log says which part stands still. Look at its disk (dmesg, iostat -x 1): if it hangs and does not recover, stop the member", "docs/operations/observe.md#vigilmemberstalled")
		}
		n, ok := e.Lag(x)
		if ok && i < len(e.Data) && e.Data[i].Later != nil {
			// Subtract the entries that it has applied since: the answers came at different times,
			// which must not count as lag.
			n = max(0, n-int64(e.Data[i].Later.RaftAppliedIndex-x.Status.RaftAppliedIndex))
		}
		if !ok && e.Leader() == 0 {
			r.skipMember(e.NameOf(x), "no leader is known")
		} else if !ok {
			r.skipMember(e.NameOf(x), "the leader did not answer")
		} else if float64(n) > e.Limits.Lag {
			r.addFinding(Warning, e.NameOf(x), fmt.Sprintf("lags the leader by %d entries", n),
				"check its disk, its processor and the network to the leader; vigilctl top shows whether it catches up", "")
		}
		if x.Status.GetIsLearner() {
			r.addFinding(Note, e.NameOf(x), "is a learner: it does not vote",
				fmt.Sprintf("when it has caught up: vigilctl member promote %x", x.ID()),
				"docs/operations/cluster.md#grow")
		}
	}
}

func (e *Examination) checkDisks(r *report) {
	e.measured(r, func(x *Reading, name string) {
		for _, c := range []struct {
			metric, what, few string
			slow, very        time.Duration // very is 0 if no value is critical
			next              string
		}{
			{WALFsync, "writing the raft log to the disk", "writes of the raft log",
				e.Limits.RaftLog, e.Limits.RaftLogCritical,
				"give the raft log a disk of its own (--wal-dir), an SSD; look for other writers: iostat -x 1"},
			{StoreCommit, "committing to the store", "commits", e.Limits.Store, 0,
				"look for other writers to the disk: iostat -x 1"},
			{Apply, "applying a write", "applied writes", e.Limits.Apply, 0,
				"look for large transactions and ranges: --warning-apply-duration names them in the log"},
		} {
			severity := func(took float64) Severity {
				if c.very > 0 && took > c.very.Seconds() {
					return Critical
				}
				return Warning
			}
			windows := e.recent(x)
			l, ok := judgeLatency(windows, c.metric, fewObservations, true)
			switch {
			case ok && l.took > c.slow.Seconds():
				r.addFinding(severity(l.took), name,
					fmt.Sprintf("%s takes %s of %d %s; below %v is good", c.what, l.text(), l.count,
						l.when, c.slow), c.next, "")
			case len(windows) == 0:
				r.skipMember(name, "what it counted lately is not known")
			default:
				last := &windows[len(windows)-1]
				if n := last.Histograms[c.metric].Count; n < manyObservations {
					r.skipMember(name, fmt.Sprintf("%d %s %s are too few to judge by", n,
						c.few, last.when()))
				}
				if !ok {
					e.noteOldLatency(r, x, c.metric, c.what, c.slow)
				}
			}
		}
		for _, w := range e.recent(x) {
			slow, all := w.Counters[SlowApplies], w.Counters[AppliedProposals]
			if slow <= 10 && all < fewObservations {
				continue // a longer window may have enough observations
			}
			if slow > 10 && slow > all/100 {
				r.addFinding(Warning, name,
					fmt.Sprintf("%.0f of %.0f writes were slow to apply %s", slow, all, w.when()),
					"its log lists them: took too long",
					"docs/operations/observe.md#vigilslowapply")
			}
			break
		}
	})
}

// latency is the duration of a frequent operation of a member.
type latency struct {
	took  float64 // in seconds
	of    int     // one of this number takes longer; 0 if took is the average
	count uint64
	when  string
}

// text describes the latency. The number of observations follows it.
func (l *latency) text() string {
	if l.of == 0 {
		return amount.Seconds(l.took) + " on average,"
	}
	return fmt.Sprintf("%s or more in one of %d cases,", amount.Seconds(l.took), l.of)
}

// judgeLatency returns the latency from the shortest window with at least least observations. A
// window also counts if its observations, one after the other, took most of its time.
func judgeLatency(windows []Window, metric string, least uint64, serial bool) (latency, bool) {
	for i := range windows {
		w := &windows[i]
		h := w.Histograms[metric]
		if took, of := slowest(h, least); of > 0 {
			return latency{took, of, h.Count, w.when()}, true
		}
		if mean, ok := h.Mean(); ok && serial && h.Count >= busyObservations &&
			h.Sum > w.Seconds/2 {
			return latency{mean, 0, h.Count, w.when()}, true
		}
	}
	return latency{}, false
}

// noteOldLatency notes a slow operation of a member that keeps no windows and has no load now: only
// counts since its start are known.
func (e *Examination) noteOldLatency(r *report, x *Reading, metric, what string,
	slow time.Duration) {
	if len(x.Recent) > 0 && !x.Recent[0].Watched {
		return
	}
	if took, of := slowest(x.Metrics.Histogram(metric), fewObservations); took > slow.Seconds() {
		r.addFinding(Note, e.NameOf(x),
			fmt.Sprintf("%s took %s or more in one of %d cases since it started; whether it still does is not known", what, amount.Seconds(took), of),
			"run doctor while the member has load: it keeps no figures of the last minutes", "")
	}
}

// slowest returns the value that one of 100 observations exceeds, or one of 10 if there are fewer
// than many. of is 0 if there are fewer than least.
func slowest(h Histogram, least uint64) (seconds float64, of int) {
	of = 100
	if h.Count < manyObservations {
		of = 10
	}
	seconds, ok := h.Quantile(1 - 1/float64(of))
	if !ok || h.Count < least {
		return 0, 0
	}
	return seconds, of
}

func (e *Examination) checkNetwork(r *report) {
	e.measured(r, func(x *Reading, name string) {
		windows := e.recent(x)
		l, ok := judgeLatency(windows, PeerRoundTrip, minRoundTrips, false)
		switch {
		case len(e.Members) != 1 && len(windows) == 0:
			r.skipMember(name, "what it counted lately is not known")
		case len(e.Members) != 1 && !ok:
			last := &windows[len(windows)-1]
			r.skipMember(name, fmt.Sprintf("%d round trips to other members %s are too few to judge by",
				last.Histograms[PeerRoundTrip].Count, last.when()))
		case l.took > e.Limits.RoundTrip.Seconds():
			r.addFinding(Warning, name,
				fmt.Sprintf("round trips to other members take %s of %d %s; below %v is good",
					l.text(), l.count, l.when, e.Limits.RoundTrip),
				"check the network between the members; if it cannot be faster, raise --heartbeat-interval and --election-timeout on all, and give --limit round-trip", "")
		}
		if len(windows) > 0 {
			w := &windows[len(windows)-1]
			if w.Watched {
				r.skipMember(name, "how often the leader changes is not known: it keeps no figures of the last hour")
			}
			if n := w.Counters[LeaderChanges]; n > 5 &&
				n/max(w.duration().Hours(), 1) > e.Limits.LeaderChanges {
				r.addFinding(Warning, name,
					fmt.Sprintf("has seen %.0f changes of the leader %s", n, w.when()),
					"check disks, processors and network: a leader without a heartbeat for --election-timeout is replaced", "docs/operations/observe.md#vigilleaderchanges")
			}
		}
		if n := x.Value(PendingProposals); n > e.Limits.Pending && e.waitLong(x, n) {
			next := "the load exceeds the capacity: check disks and network, or reduce the writes of clients"
			if x.Status.GetLeader() == 0 {
				next = "they wait for a leader: see the findings about it"
			}
			r.addFinding(Warning, name, fmt.Sprintf("%.0f writes wait for agreement", n), next,
				"docs/operations/observe.md#vigilslowrequests")
		}
	})
}

// waitLong reports whether the waiting writes take long at the rate at which the member recently
// applied others. With many clients many writes wait, each for a short time.
func (e *Examination) waitLong(x *Reading, writes float64) bool {
	windows := e.recent(x)
	if x.Status.GetLeader() == 0 || len(windows) == 0 || windows[0].Seconds <= 0 {
		return true
	}
	w := &windows[0]
	// Vigil's raft entries contain several requests.
	return writes > longWait*max(w.Counters[AppliedProposals],
		w.Counters[AppliedRequests])/w.Seconds
}

func (e *Examination) checkWatchers(r *report) {
	e.measured(r, func(x *Reading, name string) {
		if lag := x.Value(LargestWatcherLag); lag > e.Limits.WatcherLag {
			r.addFinding(Warning, name, fmt.Sprintf("a watcher is %.0f revisions behind", lag),
				"find it: vigilctl watchers --sort lag --endpoints "+
					spelling.QuoteWords(x.Endpoint), "")
		}
		if n := x.Value(StalledWatchers); n > 0 {
			what := "the client of a watcher does not read"
			if n > 1 {
				what = fmt.Sprintf("the clients of %.0f watchers do not read", n)
			}
			r.addFinding(Warning, name, what,
				"find them: vigilctl watchers --sort lag --endpoints "+
					spelling.QuoteWords(x.Endpoint), "")
		}
		if slow, waiting := x.Value(SlowWatchers), x.Value(PendingEvents); !x.IsVigil() &&
			(slow > 0 && slow >= x.Value(Watchers)/2 || waiting > e.Limits.WatcherLag) {
			r.addFinding(Warning, name,
				fmt.Sprintf("%.0f watchers do not keep up and %.0f events wait", slow, waiting),
				"check whether its clients read their watches", "")
		}
	})
}

func (e *Examination) checkCompaction(r *report) {
	e.measured(r, func(x *Reading, name string) {
		kept := x.Value(CurrentRevision) - max(0, x.Value(CompactRevision))
		if kept < e.Limits.Revisions {
			return
		}
		last := "none was compacted since it started"
		if at := x.Value(CompactedAt); at > 0 {
			last = "the last compaction was " +
				amount.Age(e.Now.Sub(time.Unix(int64(at), 0))) + " ago"
		}
		next := "start the members with --auto-compaction-retention, or: vigilctl compaction REVISION"
		if v := e.flag(x, "auto-compaction-retention"); v != "" && v != "0" {
			next = "--auto-compaction-retention=" + v +
				" is set: if that does not explain the number, the log of the leader says why compactions fail; or set it lower"
		}
		r.addFinding(Warning, name,
			fmt.Sprintf("%.0f revisions are kept; %s", kept, last), next, "")
	})
}

// flag returns the value of a flag at the reading's member, empty if unknown.
func (e *Examination) flag(x *Reading, name string) string {
	for i := range e.Readings {
		if &e.Readings[i] == x {
			return e.Flags[i][name]
		}
	}
	return ""
}
