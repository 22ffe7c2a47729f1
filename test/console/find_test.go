package console

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	cdp "github.com/chromedp/cdproto/browser"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// TestTree: folders come before keys, the tree follows the open key, and a folder has its actions.
func TestTree(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	for i := range 230 {
		put(t, c, fmt.Sprintf("deep/er/%03d", i), "x")
	}
	for _, key := range []string{"a-flat-key", "deep/key", "line\nend", "z/one", "z/two", "zz"} {
		put(t, c, key, "one\ntwo\t")
	}
	b := newBrowser(t, "http://"+m.Addr())
	lines := func() []string {
		return eval[[]string](b,
			`[...document.querySelectorAll("section > .tree > li")].map((e) => e.querySelector(".key").innerText)`)
	}
	b.open("keys?k=deep/er/229")
	// The key is in a later part of its level, and in sight.
	b.until(`document.querySelector(".tree a[aria-current]")?.innerText === "229"`)
	b.until(`(() => { const e = document.querySelector(".tree a[aria-current]").getBoundingClientRect(); return e.top > 0 && e.bottom < innerHeight; })()`)
	if got, want := lines(),
		[]string{"deep/", "z/", "a-flat-key", "line↵end", "zz"}; !slices.Equal(got, want) {
		t.Errorf("the first level is %q, want %q", got, want)
	}
	b.accessible("tree")
	eval[any](b, `location.hash = "#/keys?k=z/two", 0`)
	b.until(`document.querySelector(".tree a[aria-current]")?.innerText === "two"`)
	b.open("keys?k=deep/key&sep=none")
	b.until(`document.querySelector(".tree a[aria-current]")?.innerText === "deep/key" || document.body.innerText.includes("more…")`)

	b.open("keys")
	b.click("Live tail")
	b.shows("Live tail of all keys", "No event yet")
	b.until(`!document.body.innerText.includes("(connecting)")`)
	put(t, c, "zz", "newer")
	b.shows("newer")

	// The actions of a folder are about its keys.
	b.open("keys")
	b.click("actions on z/")
	eval[any](b, `document.querySelector(".tree .actions").querySelectorAll("a")[0].click(), 0`)
	b.shows("No event yet")
	if hash := eval[string](b, "decodeURIComponent(location.hash)"); hash != "#/watches?tail=z/" {
		t.Errorf("the tail of a folder is at %s", hash)
	}
	b.open("keys")
	b.click("actions on z/")
	eval[any](b, `document.querySelector(".tree .actions").querySelectorAll("a")[1].click(), 0`)
	b.shows("History of keys with the prefix z/", "2 changes")
	dir := t.TempDir()
	call(b, cdp.SetDownloadBehavior,
		cdp.SetDownloadBehaviorParams{Behavior: cdp.SetDownloadBehaviorBehaviorAllow,
			DownloadPath: dir})
	b.open("keys")
	b.click("actions on z/")
	eval[any](b, `document.querySelector(".tree .actions").querySelectorAll("button")[0].click(), 0`)
	b.shows("All keys with the prefix z/")
	b.click("Export")
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		text, err := os.ReadFile(filepath.Join(dir, "keys.jsonl"))
		if n := strings.Count(string(text), "\n"); err == nil && n > 0 {
			if n != 2 || strings.Count(string(text), `"key":"z/`) != 2 {
				t.Errorf("the export of a folder: %s", text)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no file: %v\npage:\n%s", err, b.text())
		}
	}
	b.until(`!document.querySelector("dialog[open]")`)
	eval[any](b, `document.querySelector(".tree .actions").querySelectorAll("button")[1].click(), 0`)
	b.shows("2 keys begin with z/")
	b.fill("Type", "2")
	b.click("Delete 2 keys")
	b.until(`!document.querySelector("dialog[open]")`)
	if res, err := c.Get(t.Context(), "", clientv3.WithPrefix(),
		clientv3.WithCountOnly()); err != nil || res.Count != 234 {
		t.Errorf("%v keys are left, %v", res, err)
	}
	// The past has no deletion.
	b.open("keys?rev=3")
	b.shows("as of revision")
	if strings.Contains(b.text(), "Delete…") {
		t.Error("keys of the past can be deleted")
	}
	b.check()
}

// TestNewestFirst: the history of the store has its newest changes first, and a bar for those of a
// time; the history of a key begins with its last change.
func TestNewestFirst(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	put(t, c, "config/app", "first")
	put(t, c, "config/app", "replicas: 1\nimage: web\n")
	first := marked(t, c)
	for i := range 700 {
		put(t, c, fmt.Sprintf("many/%03d", i), "x")
	}
	put(t, c, "config/app", "replicas: 2\nimage: web\n")
	last := put(t, c, "config/new", "x")
	marked(t, c)
	newest := put(t, c, "config/newer", "x")
	marked(t, c)
	b := newBrowser(t, "http://"+m.Addr())
	revisions := func() []int64 {
		return eval[[]int64](b,
			`[...document.querySelectorAll("main tbody tr")].map((r) => Number(r.querySelector("td").innerText))`)
	}
	b.open("history")
	b.shows("the newest first", "Changes by time", "Older changes")
	b.until(`document.querySelectorAll("main tbody tr").length === 500`)
	b.click("Older changes")
	b.until(`document.querySelectorAll("main tbody tr").length > 500 && !document.body.innerText.includes("Older changes")`)
	list := revisions()
	if !slices.IsSortedFunc(list, func(a, b int64) int { return int(b - a) }) || list[0] < newest ||
		list[len(list)-1] != 2 || int64(len(list)) != list[0]-1 {
		t.Errorf("%d revisions from %d to %d, want each once, the newest first", len(list), list[0],
			list[len(list)-1])
	}
	// The bars have all changes, and lead to theirs.
	labels := eval[[]string](b,
		`[...document.querySelectorAll(".bars a")].map((a) => a.getAttribute("aria-label"))`)
	total := 0
	for _, l := range labels {
		var at string
		var n int
		fmt.Sscanf(strings.ReplaceAll(l, ",", ""), "%s %d", &at, &n)
		total += n
	}
	if total != len(list) || len(labels) < 2 {
		t.Errorf("%d changes in the bars %q, want %d", total, labels, len(list))
	}
	b.accessible("history of the store")
	eval[any](b, `[...document.querySelectorAll(".bars a")].at(-1).dispatchEvent(new MouseEvent("click", {bubbles: true, cancelable: true})), 0`)
	b.until(`document.querySelectorAll("main tbody tr").length < 500 && /from=\d+&to=\d+/.test(location.hash)`)

	// A prefix with few changes is found behind many others.
	b.open(fmt.Sprintf("history?prefix=config/&to=%d", last))
	b.shows("4 changes", "History of keys with the prefix config/")
	if got := revisions(); !slices.IsSortedFunc(got, func(a, b int64) int { return int(b - a) }) ||
		got[0] != last || got[3] != 2 {
		t.Errorf("the changes of a prefix are %v", got)
	}
	b.open("history?prefix=config/&from=" + first.UTC().Format(time.RFC3339Nano))
	b.shows("3 changes")

	// A key.
	b.open("history?k=config/app")
	b.shows("The last change, at revision", "-replicas: 1", "+replicas: 2",
		"replicas: 2↵image: web↵")
	if strings.Contains(b.text(), "-first") {
		t.Error("the history of a key compares more than its last change")
	}
	b.until(`[...document.querySelectorAll("input[name=a], input[name=b]")].map((e) => e.checked).join() === "false,true,true,false,false,false"`)
	eval[any](b, `document.querySelectorAll("input[name=a]")[2].click(), 0`)
	b.shows("From revision 2 to", "-first")
	// After a compaction, what it has kept can still be compared and read.
	if _, err := c.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	put(t, c, "config/app", "replicas: 3\nimage: web\n")
	b.open("history?k=config/app")
	b.shows("2 revisions", "-replicas: 2", "+replicas: 3")
	if _, err := c.Delete(t.Context(), "config/app"); err != nil {
		t.Fatal(err)
	}
	b.open("history?k=config/app")
	b.shows(": deleted", "-replicas: 3")
	b.check()
}

// TestCounts: a list says how much of what it shows.
func TestCounts(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	for i := range 250 {
		put(t, c, fmt.Sprintf("web/%03d", i), "x")
	}
	b := newBrowser(t, "http://"+m.Addr())
	caption := func(address, want string) {
		t.Helper()
		if address != "" {
			b.open(address)
		}
		q, _ := json.Marshal(want)
		b.until(`document.querySelector("caption")?.innerText === ` + string(q))
	}
	caption("keys?mode=prefix&q=web/00", "10 keys")
	caption("keys?mode=prefix&q=web/000", "1 key")
	caption("keys?mode=prefix&q=web/", "1 to 200 of 250 keys")
	b.click("Next keys")
	caption("", "201 to 250 of 250 keys")
	caption("keys?mode=prefix&q=web/&sort=mod&desc=1",
		"1 to 200 of 250 keys; the first in this order")
	caption("keys?mode=pattern&q=/",
		"200 of at least 200 keys that match; 200 of 250 keys were searched")
	b.click("Next keys")
	caption("", "250 keys match, of 250 that were searched")
	caption("keys?mode=pattern&q=web/*7", "25 keys match, of 250 that were searched")
	b.check()
}

// TestNarrow: at 400 pixels no table has columns outside of the window, and every cell has its
// title.
func TestNarrow(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	fillStore(t, c)
	lease, err := c.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	put(t, c, "locks/"+strings.Repeat("job/", 30)+fmt.Sprintf("%x", lease.ID),
		strings.Repeat("value ", 50), clientv3.WithLease(lease.ID))
	hostileNames(t, c)
	b := newBrowser(t, "http://"+m.Addr())
	b.look(false, 400)
	for _, view := range []string{"keys?mode=prefix&q=services/&cols=mod,create,version,lease,size,text", "keys?mode=prefix&q=hostile/&cols=mod,size,text", "history", "history?k=config/app", "leases", "access?who=config/app"} {
		b.open(view)
		b.until(`document.querySelector("main .cards tbody tr") && !document.querySelector(".busy")`)
		for _, cut := range eval[[]string](b,
			`[...document.querySelectorAll("main .scroll")].filter((e) => e.scrollWidth > e.clientWidth).map((e) => e.getAttribute("aria-label") + " " + e.scrollWidth)`) {
			t.Errorf("%s: the table %s is wider than the window", view, cut)
		}
		for _, cut := range eval[[]string](b,
			`[...document.querySelectorAll("main .cards td, main .cards tbody th")].filter((e) => e.offsetWidth && (e.getBoundingClientRect().right > innerWidth || e.tagName === "TD" && (!e.dataset.label || getComputedStyle(e, "::before").content === "none"))).map((e) => e.innerText)`) {
			t.Errorf("%s: a cell is cut, or has no title: %.100q", view, cut)
		}
		b.narrow(view)
		b.accessible(view)
	}
	b.check()
}
