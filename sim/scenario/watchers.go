package scenario

import (
	"fmt"
	"maps"
	"slices"

	"vigil/sim/check"
	"vigil/sim/scenario/setup"
)

// addMessage adds a watcher, and the message that it received if there is one.
func (r *run) addMessage(by *setup.Watcher, m *check.Message) {
	w := r.watchers[by.Name]
	if w == nil {
		w = &check.SharedRecord{R: check.Record{Name: by.Name, From: by.From, To: by.To,
			Filter: by.Filter, Next: by.Next}}
		r.watchers[by.Name] = w
		if by.Endpoint != "" {
			r.only[by.Name] = by.Endpoint
		}
		if by.Number != 0 {
			r.numbered[by.Number] = w
		}
		if r.late != nil {
			r.late = append(r.late, w)
		}
	}
	if m == nil {
		return
	}
	r.events += len(m.Events)
	w.Add(*m)
	if w.R.To != "" {
		return
	}
	for events := m.Events; len(events) > 0; {
		n := 1
		for n < len(events) && events[n].Mod == events[0].Mod {
			n++
		}
		if err := r.all.Add(events[0].Mod, m.At, events[:n]); err != nil && !w.R.Skipped() {
			r.v.Add("%s: not reliable: %v", by.Name, err)
		}
		events = events[n:]
	}
}

// addMessages adds a message that several watchers without the library received.
func (r *run) addMessages(to []int, m check.Message) {
	r.events += len(to) * len(m.Events)
	for _, n := range to {
		r.numbered[n].Add(m)
	}
}

// complete reports whether the last write was made, every watcher has it, and the work of all
// clients has ended: the end of a lease or of the wait for a lock needs the members.
func (r *run) complete() bool { return r.final > 0 && r.missing() == "" }

// missing returns what is missing before the run is complete, or nothing.
func (r *run) missing() string {
	if s := r.unsettled(); s != "" {
		return s
	}
	if r.final == 0 {
		return "there is no last write, or a member does not know it"
	}
	if r.working > 0 {
		return fmt.Sprintf("the work of %d processes of clients has not ended", r.working)
	}
	if r.all.Last() < r.final {
		return fmt.Sprintf("no watcher received revision %d", r.final)
	}
	if r.late == nil {
		r.late = []*check.SharedRecord{}
		for _, name := range slices.Sorted(maps.Keys(r.watchers)) {
			r.late = append(r.late, r.watchers[name])
		}
	}
	for ; len(r.late) > 0; r.late = r.late[1:] {
		w := r.late[0]
		if rev := r.all.Newest(w, r.final); !w.R.Partial && !w.Has(rev) && !r.left(w.R.Name) {
			return fmt.Sprintf("%s has revisions up to %d, not %d", w.R.Name, w.Resume()-1, rev)
		}
	}
	return ""
}

// left reports whether the only member that a watcher uses is no member any more.
func (r *run) left(watcher string) bool {
	e := r.only[watcher]
	return e != "" && !slices.Contains(endpoints(r.members), e)
}
