package console

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// watching opens a watcher at a member.
func watching(t *testing.T, m *proc.Server) {
	t.Helper()
	events := connect(t, m, "").Watch(t.Context(), "services/", clientv3.WithPrefix())
	go func() {
		for range events {
		}
	}()
}

// visit goes to a view of the page that is open.
func (b *browser) visit(view string) {
	b.t.Helper()
	eval[chromedp.Void](b, fmt.Sprintf("void (location.hash = %q)", "#/"+view))
}

// TestAlone opens every view at the one member of three that runs. None waits for a quorum: each
// says what this member knows, how old that is, or that there is no leader.
func TestAlone(t *testing.T) {
	chromium(t)
	members := cluster(t)
	c := connect(t, members[0], "")
	put(t, c, "config/app", "the value")
	if _, err := c.Grant(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		watching(t, m)
	}
	b := newBrowser(t, "http://"+members[0].Addr())
	b.open("watches")
	b.until(`document.querySelectorAll("[aria-label=Watchers] tbody tr").length === 3`)
	b.open("overview")
	b.shows("3 of 3 members answer")
	members[1].Kill()
	members[2].Kill()
	b.shows("1 of 3 members answer", "no write is possible", "last seen")
	b.until(`document.querySelectorAll("tr.old").length === 2 && [...document.querySelectorAll("tr.old")].every((r) => r.innerText.includes("KiB") || r.innerText.includes(" B"))`)
	b.until(`!document.querySelector("[role=alert]")`)
	// The member serves the page of a finding itself.
	b.until(`[...document.querySelectorAll(".findings a")].some((a) => a.getAttribute("href") === "docs/operations/observe#vigilmemberdown")`)
	if res, err := http.Get(b.url + "/console/docs/operations/observe"); err != nil ||
		res.StatusCode != http.StatusOK {
		t.Errorf("the page of a finding: %v, %v", res, err)
	} else {
		res.Body.Close()
	}
	b.accessible("the overview of a member that is alone")
	b.screenshot("overview-alone")
	for _, view := range []struct {
		address string
		shows   []string
	}{
		{"overview", []string{"1 of 3 members answer", "m1: has had no leader for"}},
		{"members", []string{"1 of 3 voting members answer", "does not answer"}},
		{"keys?k=config/app",
			[]string{"m1 has had no leader for", "the value", "which may be old"}},
		{"keys?mode=prefix&q=config/", []string{"m1 has had no leader for", "config/app"}},
		{"history?k=config/app", []string{"m1 has had no leader for", "1 revision"}},
		{"history?from=2", []string{"m1 has had no leader for", "config/app"}},
		{"watches", []string{"The watchers of m2 are not known", "The watchers of m3 are not known",
			"at least 1 watcher"}},
		{"watches?tail=config/", []string{"m1 has had no leader for", "nothing happens here"}},
		{"leases", []string{"no leader: m1 has had no leader for", "look at the overview"}},
		{"access", []string{"no leader: m1 has had no leader for", "look at the overview"}},
	} {
		b.open(view.address)
		b.shows(view.shows...)
		b.accessible(view.address)
		b.look(true, 400)
		b.narrow(view.address)
		b.look(false, 1280)
	}
	// Nobody offers to lead with a member that does not answer.
	b.open("members")
	b.shows("1 of 3 voting members answer")
	b.until(`document.querySelector("[aria-label='remove m2']") && !document.querySelector("[aria-label^='lead with']")`)
	b.open("overview")
	members[1].Restart()
	members[2].Restart()
	b.shows("3 of 3 members answer")
	b.until(`!document.querySelector("tr.old")`)
	b.open("keys?k=config/app")
	b.shows("the value")
	b.until(`!document.body.innerText.includes("has had no leader")`)
	b.check()
}

// TestFrozen: a member that hangs accepts connections and answers nothing. The view of another
// member shows what it said last, in grey, and since when; its own views turn grey as a whole, and
// name the consoles of the others. When it runs again they recover.
func TestFrozen(t *testing.T) {
	chromium(t)
	members := cluster(t)
	c := connect(t, members[1], "")
	fillStore(t, c)
	for _, m := range members {
		watching(t, m)
	}
	b := newBrowser(t, "http://"+members[0].Addr())
	for _, view := range []struct {
		name, address string
		// fresh is true while the view is the present.
		fresh string
	}{
		{"overview", "overview",
			`document.body.innerText.includes("3 of 3 members answer") && document.querySelector(".verdict.good, .verdict.warn")`},
		{"members", "members", `document.body.innerText.includes("3 of 3 voting members answer")`},
		{"watches", "watches?filter=services",
			`document.querySelectorAll("[aria-label=Watchers] tbody tr").length === 3`},
		{"tail", "watches?tail=config/",
			`document.body.innerText.includes("No event yet") && !document.body.innerText.includes("(connecting)")`},
	} {
		t.Run(view.name, func(t *testing.T) {
			b.t = t
			b.open(view.address)
			b.until(view.fresh)
			b.until(`!document.querySelector(".stale")`)
			members[0].Pause()
			defer members[0].Resume()
			b.shows("m1 has not answered since")
			b.until(`document.querySelector(".stale")`)
			for _, m := range members[1:] {
				b.until(fmt.Sprintf(`[...document.querySelectorAll("[role=alert] a")].some((a) => a.href === "http://%s/console/")`, m.Addr()))
			}
			if view.name == "overview" {
				b.until(`!document.body.innerText.includes("3 of 3 members answer") || !document.querySelector(".verdict.good")`)
				b.shows("Not known. At")
				b.screenshot("overview-frozen")
			}
			b.accessible(view.name)
			b.look(true, 400)
			b.narrow(view.name)
			b.look(false, 1280)
			if slices.Contains([]string{"overview", "members"}, view.name) {
				b.until(`![...document.querySelectorAll("main button")].some((e) => !e.disabled && /…$/.test(e.innerText))`)
			}
			members[0].Resume()
			b.until(`!document.querySelector(".stale") && !document.querySelector("[role=alert]")`)
			b.until(view.fresh)
			b.check()
		})
	}

	t.Run("another member", func(t *testing.T) {
		b.t = t
		b.open("overview")
		b.shows("3 of 3 members answer")
		members[2].Pause()
		defer members[2].Resume()
		b.shows("2 of 3 members answer", "m3: does not answer this member",
			"no answer in time", "last seen")
		b.until(`document.querySelectorAll("tr.old").length === 1 && document.querySelector("tr.old").innerText.includes("m3")`)
		b.open("watches?filter=services")
		b.shows("The watchers of m3 are not known: no answer in time", "2 of at least 2 watchers")
		members[2].Resume()
		b.until(`document.querySelectorAll("[aria-label=Watchers] tbody tr").length === 3 && !document.querySelector("tr.old")`)
		members[2].Pause()
		b.shows("The grey ones are from")
		b.until(`document.querySelectorAll("[aria-label=Watchers] tbody tr").length === 3 && document.querySelectorAll("tr.old").length === 1`)
		b.accessible("watchers of a member that hangs")
		b.screenshot("watches-frozen")
		members[2].Resume()
		b.until(`!document.querySelector("tr.old")`)
		b.check()
	})

	// A view that is opened while the member hangs says so, too.
	t.Run("at once", func(t *testing.T) {
		b.t = t
		b.open("keys")
		b.shows("services/")
		members[0].Pause()
		defer members[0].Resume()
		for _, view := range []string{"overview", "members", "watches", "watches?tail=x"} {
			b.visit(view)
			b.shows("m1 has not answered since")
		}
		b.visit("keys?k=config/app")
		b.shows("m1 may hang; consoles of other members: m2, m3")
		members[0].Resume()
		b.shows("\"replicas\": 3")
		b.check()
	})
}
