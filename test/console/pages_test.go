package console

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// has returns which of some buttons the page has.
func (b *browser) has(buttons ...string) (out []string) {
	b.t.Helper()
	for _, name := range buttons {
		if eval[bool](b, fmt.Sprintf(`[...document.querySelectorAll("main button")].some((e) => e.innerText.trim() === %q)`, name)) {
			out = append(out, name)
		}
	}
	return out
}

// TestPastIsReadOnly: nothing that writes to the present is offered while the past is shown.
// Revision 0 is the newest one, as in the API.
func TestPastIsReadOnly(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	rev := put(t, c, "config/app", "one")
	put(t, c, "config/app", "two")
	b := newBrowser(t, "http://"+m.Addr())
	writers := []string{"New key", "Import…", "Edit", "Delete…"}
	for _, view := range []string{"keys?prefix=config/&k=config/app",
		"keys?mode=prefix&q=config/&k=config/app", "keys?k=config/app&rev=0"} {
		b.open(view)
		b.until(`document.querySelector("pre.value")?.innerText === "two"`)
		if got := b.has(writers...); len(got) != len(writers) {
			t.Errorf("%s: of %q the page has %q", view, writers, got)
		}
		if strings.Contains(b.text(), "as of revision") {
			t.Errorf("%s: the newest state is shown as the past", view)
		}
		if strings.Contains(view, "rev=") {
			continue
		}
		b.open(view + fmt.Sprint("&rev=", rev))
		b.until(`document.querySelector("pre.value")?.innerText === "one"`)
		if got := b.has(writers...); len(got) != 0 {
			t.Errorf("%s: at revision %d the page has %q, which write to the present",
				view, rev, got)
		}
		b.accessible("the past")
	}
	b.check()
}

// TestTreeOfPrefixes: the tree is of the prefix of the address, whatever the prefix and the
// separator are.
func TestTreeOfPrefixes(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	put(t, c, "null", "x")
	put(t, c, "other", "x")
	put(t, c, "ab/c", "x")
	b := newBrowser(t, "http://"+m.Addr())
	b.open("keys?prefix=null")
	b.until(`document.querySelectorAll(".tree li").length === 1`)
	b.click("all keys")
	b.until(`document.querySelectorAll(".tree li").length === 3`)
	b.open("keys?prefix=a&sep=b/")
	b.until(`document.querySelectorAll(".tree li").length === 1 && document.querySelector(".tree button.fold")?.innerText === "b/"`)
	eval[any](b, `location.hash = "#/keys?prefix=ab&sep=/", 0`)
	b.until(`document.querySelector(".tree button.fold")?.innerText === "/"`)
	b.check()
}

// TestCompactionIsWhatIsTyped: a compaction is never to the revision of an earlier text, and a time
// that cannot be found is explained.
func TestCompactionIsWhatIsTyped(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	var newest int64
	for range 30 {
		newest = put(t, c, "k", "v")
	}
	b := newBrowser(t, "http://"+m.Addr())
	b.open("members")
	b.click("Compact…")
	b.fill("Keep the history since", fmt.Sprint(newest))
	b.shows("This ends all history")
	// The text changes, and Enter is pressed before the page is painted again.
	eval[any](b, `new Promise((done) => { const i = document.querySelector("dialog input"); Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value").set.call(i, "5"); i.dispatchEvent(new Event("input", {bubbles: true}));
		const c = new MessageChannel(); c.port1.onmessage = () => { document.querySelector("dialog button.danger").click(); i.form.requestSubmit(); done(0); }; c.port2.postMessage(0); })`, chromedp.EvalAwaitPromise)
	b.shows("Compact to 5")
	if res, err := c.Get(t.Context(), "k", clientv3.WithRev(6)); err != nil || len(res.Kvs) != 1 {
		t.Fatalf("a compaction to 5 was typed: %v, %v", res, err)
	}
	for text, want := range map[string]string{"2001-01-01": "is not known", "2201-01-01": "future",
		"nonsense": "write a number, or a time"} {
		b.fill("Keep the history since", text)
		b.shows(want)
		b.until(`document.querySelector("dialog button.danger").disabled`)
		b.accessible("compaction at " + text)
	}
	b.check()
}

// file chooses a file for an import.
func (b *browser) file(content string) {
	b.t.Helper()
	b.click("Import…")
	b.until(`document.querySelector("dialog input[type=file]")`)
	eval[chromedp.Void](b, `void ((f) => { const d = new DataTransfer(); d.items.add(new File([`+
		content+`], "keys.jsonl")); f.files = d.files; f.dispatchEvent(new Event("change", {bubbles: true})); })(document.querySelector("dialog input[type=file]"))`)
}

// TestImportEnds: a stopped import writes no more, requests are small enough for slow disks, an
// error has the line of the file, and a file without lines is rejected before it fills the memory.
func TestImportEnds(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	b := newBrowser(t, "http://"+m.Addr())
	b.open("keys")
	eval[any](b, `window.sizes = [], window.real = window.fetch, window.fetch = (path, init) => { if (path.endsWith("import")) sizes.push(JSON.parse(init.body).lines.split("\n").length); return real(path, init); }, 0`)
	const line = `(i) => JSON.stringify({key: "many/" + String(i).padStart(6, "0"), value: ""})`

	b.file(`Array.from({length: 100000}, (_, i) => (` + line + `)(i)).join("\r\n")`)
	b.click("Import")
	b.until(`sizes.length > 2`)
	b.accessible("running import")
	b.click("Stop")
	b.until(`!document.querySelector("dialog[open]")`)
	sent := eval[int](b, `sizes.length`)
	for range 3 { // time in which further lines would be sent
		b.open("keys?k=many/000000")
		b.shows("many/000000")
	}
	res, err := c.Get(t.Context(), "many/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d requests were sent, %d keys written", sent, res.Count)
	if res.Count >= 50_000 {
		t.Errorf("a stopped import has written %d keys", res.Count)
	}

	eval[any](b, `window.sizes = [], window.real = window.fetch, window.fetch = (path, init) => { if (path.endsWith("import")) sizes.push(JSON.parse(init.body).lines.split("\n").length); return real(path, init); }, 0`)
	b.file(`[...Array.from({length: 500}, (_, i) => (` + line +
		`)(900000 + i)), '{"key":', '{"key":"never","value":""}'].join("\n")`)
	b.click("Import")
	b.shows("line 501: ", "500 keys written")
	if most := eval[int](b, `Math.max(...sizes)`); most > 200 {
		t.Errorf("%d lines are written by one request, which may take 30 s", most)
	}
	b.click("Close")
	if res, err = c.Get(t.Context(), "many/9", clientv3.WithPrefix(),
		clientv3.WithCountOnly()); err != nil || res.Count != 500 {
		t.Errorf("%v, %v", res, err)
	}

	b.file(`"\ufeff" + JSON.stringify({key: "bom", value: "x"}) + "\n", new Uint8Array(70 << 20).fill(120)`)
	b.click("Import")
	b.shows("a line has more than")
	b.shows("1 key written")
	b.check()
}

// TestEditOfDeleted: what was typed is not lost when the key was deleted meanwhile: it can be made
// again.
func TestEditOfDeleted(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	put(t, c, "config/app", "one")
	b := newBrowser(t, "http://"+m.Addr())
	b.open("keys?k=config/app")
	b.click("Edit")
	b.until(`document.querySelector("dialog textarea")?.value === "one"`)
	b.fill("Value", "mine")
	if _, err := c.Delete(t.Context(), "config/app"); err != nil {
		t.Fatal(err)
	}
	b.click("Write")
	b.shows("the key does not exist any more")
	b.accessible("conflict with a deletion")
	b.click("I have seen it: make the key again with my value")
	b.shows("Written only if the key does not exist yet")
	b.click("Write")
	b.until(`!document.querySelector("dialog[open]")`)
	if got := value(t, c, "config/app"); got != "mine" {
		t.Errorf("it is %q", got)
	}
	b.check()
}

// TestCopiedRanges: the command for a range reads what the page shows.
func TestCopiedRanges(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	put(t, c, "a", "x")
	put(t, c, "b", "x")
	b := newBrowser(t, "http://"+m.Addr())
	for view, want := range map[string]string{
		"keys?mode=range&q=a":                     "a\n\nb\n\n",
		"keys?mode=range&q=b&end=base64:AA==":     "b\n\n",
		"keys?mode=range&q=&end=base64:AA==":      "a\n\nb\n\n",
		"keys?mode=range&q=a&end=b":               "a\n\n",
		"keys?mode=range&q=base64:AQ==&end=b":     "a\n\n",
		"keys?mode=prefix&q=base64:YQ==&cols=mod": "a\n\n",
	} {
		command := b.copied(view)
		r := proc.Run(t, patience,
			proc.Spec{Name: "bash",
				Args: []string{"-c",
					strings.Replace(command, "etcdctl", proc.Path(t, proc.Etcdctl), 1)}})
		if r.Code != 0 || r.Stdout != want {
			t.Errorf("%s: %s: %+v", view, command, r)
		}
	}
	b.open("keys?mode=range&q=&end=b") // the first key is a zero byte
	b.shows("cannot be in a command")
	b.check()
}
