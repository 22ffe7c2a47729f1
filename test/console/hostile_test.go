package console

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// harmless fails the test if a name has become markup: an element that the console has not made, or
// a script that ran.
func (b *browser) harmless() {
	b.t.Helper()
	b.until(`window.harmed === undefined && document.querySelectorAll("main img, main script, main b, header img, header script, header b, dialog img, dialog script").length === 0`)
}

// TestHostileMember: the name of a member is markup, and changes the direction of the text.
func TestHostileMember(t *testing.T) {
	chromium(t)
	// no = and no comma: --initial-cluster divides at them
	const name = "<img/src/onerror\u202eevil\x1b[31m><b>"
	const shown = `<img/src/onerror\u{202e}evil\u{1b}[31m><b>`
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true, Name: name})
	put(t, connect(t, m, ""), "config/app", "x")
	b := newBrowser(t, "http://"+m.Addr())
	for _, view := range []string{"overview", "keys", "members", "watches",
		"watches?member=" + name} {
		b.open(view)
		b.shows(shown)
		b.harmless()
		if strings.ContainsAny(b.text(), "\u202e\x1b") {
			t.Errorf("%s shows characters that change the others", view)
		}
		if title := eval[string](b, "document.title"); strings.ContainsAny(title, "\u202e\x1b") ||
			!strings.Contains(title, `\u{202e}`) {
			t.Errorf("%s has the title %q", view, title)
		}
		if labels := eval[string](b,
			`[...document.querySelectorAll("[aria-label], [title]")].map((e) => e.getAttribute("aria-label") + e.getAttribute("title")).join()`); strings.ContainsAny(labels, "\u202e\x1b") {
			t.Errorf("%s has labels with characters that change the others", view)
		}
	}
	b.open("members")
	b.shows(shown)
	// The name cannot be typed: the removal is confirmed by the ID.
	b.click("remove " + shown)
	b.until(`/^[0-9a-f]{8,16}$/.test(document.querySelector("dialog[open] label code").innerText)`)
	if title := eval[string](b,
		`document.querySelector("dialog[open] h2").innerText`); title != "Remove "+shown {
		t.Errorf("the dialog is called %q", title)
	}
	b.accessible("removal of a hostile name")
	b.click("Cancel")
	b.look(false, 400)
	b.narrow("members")
	b.check()
}

// TestLongMember: the name of a member may be as long as an argument of a program, and is cut
// everywhere.
func TestLongMember(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Name: "long<b>" + strings.Repeat("name ", 13_000)})
	put(t, connect(t, m, ""), "config/app", "x")
	b := newBrowser(t, "http://"+m.Addr())
	b.look(false, 400)
	for _, view := range []string{"overview", "keys", "members", "watches"} {
		b.open(view)
		b.shows("long<b>name", "characters)")
		b.until(`!document.querySelector(".busy")`)
		b.harmless()
		b.narrow(view)
		if text := b.text(); len(text) > 20_000 {
			t.Errorf("%s: %d bytes of text", view, len(text))
		}
		if title := eval[string](b, "document.title"); len(title) > 300 {
			t.Errorf("%s: a title of %d bytes", view, len(title))
		}
	}
	b.open("members")
	b.until(`[...document.querySelectorAll("main button")].some((e) => e.innerText === "Remove…")`)
	eval[any](b, `[...document.querySelectorAll("main button")].find((e) => e.innerText === "Remove…").click(), 0`)
	b.until(`/^[0-9a-f]{8,16}$/.test(document.querySelector("dialog[open] label code").innerText)`)
	b.check()
}

// TestHostileNames: names of users and roles that are as long as a request, markup, or not visible.
func TestHostileNames(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	const bidi = "eve\u202etoor\x07"
	// The cluster accepts names of up to 32 KiB.
	if _, err := c.UserAdd(t.Context(), strings.Repeat("n", 64<<10), "secret"); err == nil ||
		!strings.Contains(err.Error(), "longer than the limit") {
		t.Errorf("a name of 64 KiB: %v", err)
	}
	long := "long" + strings.Repeat("<b>x</b> \u202e", 32<<10/13)
	for _, name := range []string{hostile, bidi, long} {
		if _, err := c.RoleAdd(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := c.RoleGrantPermission(t.Context(), name, name, "",
			clientv3.PermissionType(clientv3.PermReadWrite)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.UserAdd(t.Context(), name, "secret"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.UserGrantRole(t.Context(), name, name); err != nil {
			t.Fatal(err)
		}
		put(t, c, name, name)
	}
	b := newBrowser(t, "http://"+m.Addr())
	calm := func(view string) {
		t.Helper()
		b.harmless()
		text := b.text()
		if strings.ContainsAny(text, "\u202e\x07") {
			t.Errorf("%s shows characters that change the others", view)
		}
		if len(text) > 20_000 {
			t.Errorf("%s: %d bytes of text", view, len(text))
		}
		b.narrow(view)
	}
	b.open("access?who=" + "base64:" + b64(bidi))
	b.shows(hostile, `eve\u{202e}toor\u{7}`, "characters)", "Users that may read or write the key")
	calm("users")
	b.accessible("hostile names")
	b.look(false, 400)
	calm("users at 400 pixels")
	b.look(false, 1280)
	b.click(`grant role eve\u{202e}toor\u{7} to ` + hostile)
	b.shows("gets all permissions of the role")
	calm("a dialog")
	b.click("Cancel")
	b.open("keys")
	b.shows(`eve\u{202e}toor\u{7}`)
	calm("keys")
	b.open("keys?mode=prefix&q=long&cols=size,text")
	b.shows("1 key", "bytes)")
	calm("a search")
	// with characters that an address should escape, and that are read nevertheless
	b.open("keys?k=base64:" + b64(long))
	b.shows("Modified at")
	b.harmless()
	b.narrow("a long key")
	b.open("history?k=base64:" + b64(long))
	b.shows("1 revision")
	calm("the history of a long key")
	b.open("history")
	b.shows("changes in")
	calm("the time line")
	b.open("watches?tail=long")
	b.shows("No event yet")
	b.until(`!document.body.innerText.includes("(connecting)")`)
	put(t, c, long, "again")
	b.shows("a long key")
	calm("a tail")

	// A user with such a name logs in.
	if _, err := c.UserAdd(t.Context(), "root", "secret"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UserGrantRole(t.Context(), "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AuthEnable(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.open("keys")
	b.fill("User", bidi)
	b.fill("Password", "secret")
	b.click("Log in")
	b.shows("You may read these ranges", `eve\u{202e}toor\u{7}`)
	calm("the keys of a user")
	b.check()
}

// TestCopiedCommands: what "Copy as etcdctl" copies reads the key and nothing else, whatever the
// key is: keys that look like flags, and keys with characters of a shell. No shell that the command
// may be pasted into runs anything else.
func TestCopiedCommands(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	bin := t.TempDir()
	program := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", proc.Path(t, proc.Vigilctl))
	if err := os.WriteFile(filepath.Join(bin, "etcdctl"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, "http://"+m.Addr())
	for i, key := range []string{"plain/key", "--endpoints=http://127.0.0.1:1", "-w=json",
		"a b'c$(touch harmed)`touch harmed`;touch harmed", "\xff\n'\\end", "bidi\u202ex", "--",
		`\'; touch harmed #`, `\\'; touch harmed #`, `'; touch harmed #`, "\x01'; touch harmed; '",
		"\x01\\'; touch harmed #", "=ls", "%1", "~", "a!b", `"$(touch harmed)"`} {
		value := fmt.Sprint("the value ", i)
		rev := put(t, c, key, value)
		for _, past := range []string{"", fmt.Sprintf("&rev=%d", rev)} {
			if past != "" && i > 2 {
				continue
			}
			b.open("keys?k=base64:" + b64(key) + past)
			b.shows(value)
			b.until(`navigator.clipboard`)
			eval[any](b, `navigator.clipboard.writeText = async (text) => { window.copied = text; }, 0`)
			eval[any](b, `[...document.querySelector("section.detail").querySelectorAll("button")].find((e) => e.innerText === "Copy as etcdctl").click(), 0`)
			b.until("window.copied")
			command := eval[string](b, "window.copied")
			if !strings.HasPrefix(command, "etcdctl --endpoints=http://"+m.Addr()+" get ") {
				t.Errorf("%q: the command is for another member: %s", key, command)
			}
			for _, shell := range []string{"bash", "zsh", "sh", "fish"} {
				if _, err := exec.LookPath(shell); err != nil {
					t.Logf("%s is not installed", shell)
					continue
				}
				dir := t.TempDir()
				r := proc.Run(t, patience,
					proc.Spec{Name: shell, Args: []string{"-c", "cd " + dir + "\n" + command},
						Env: []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir}})
				// POSIX and fish have no form for bytes that are no text.
				knows := shell == "bash" || shell == "zsh" || !strings.Contains(command, "$'")
				if read := r.Code == 0 && r.Stdout == key+"\n"+value+"\n"; knows && !read {
					t.Errorf("%s: %q: %s: %+v", shell, key, command, r)
				}
				if _, err := os.Stat(filepath.Join(dir, "harmed")); err == nil {
					t.Errorf("%s: %q: %s has run another command", shell, key, command)
				}
			}
		}
	}
	// A word of a command ends at a zero byte: the command would read another key.
	put(t, c, "zero\x00byte", "the value")
	b.open("keys?k=base64:" + b64("zero\x00byte"))
	b.shows("the value", "a key with a zero byte cannot be in a command")
	b.check()
}

// copied opens a view, and returns what its button copies.
func (b *browser) copied(view string) string {
	b.t.Helper()
	b.open(view)
	b.until(`[...document.querySelectorAll("main button")].some((e) => e.innerText === "Copy as etcdctl" && !e.disabled)`)
	eval[any](b, `window.copied = "", navigator.clipboard.writeText = async (text) => { window.copied = text; }, 0`)
	b.click("Copy as etcdctl")
	b.until("window.copied")
	return eval[string](b, "window.copied")
}

// TestCopiedEndpoints: a copied command reaches the member where it serves gRPC, as the user of the
// page.
func TestCopiedEndpoints(t *testing.T) {
	chromium(t)
	port := proc.FreePort(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{fmt.Sprintf("--listen-client-http-urls=http://127.0.0.1:%d", port)}})
	c := connect(t, m, "")
	for i := range 201 {
		put(t, c, fmt.Sprintf("config/%d", i), "x")
	}
	enableAuth(t, c)
	b := newBrowser(t, fmt.Sprintf("http://127.0.0.1:%d", port))
	b.open("keys")
	b.fill("User", "alice")
	b.fill("Password", "secret")
	b.click("Log in")
	b.shows("You may read these ranges")
	for view, want := range map[string]string{
		"keys?k=config/1":                                      "get config/1",
		"keys?mode=prefix&q=config/20":                         "get --prefix --keys-only config/20",
		"keys?mode=prefix&q=config/&sort=mod&desc=1&cols=text": "get --prefix --limit=200 --sort-by=MODIFY --order=DESCEND config/",
		"keys?mode=range&q=config/1&end=config/3":              "get --keys-only config/1 config/3",
		"history?k=config/1":                                   "watch --rev=3 config/1",
		"watches?tail=config/":                                 "watch --prefix config/",
	} {
		if got := b.copied(view); got != "etcdctl --endpoints=http://"+m.Addr()+
			" --user=alice "+want {
			t.Errorf("%s: copied %s", view, got)
		}
	}
	b.check()
}

// TestWords: on a slow network each view says at once what it waits for.
func TestWords(t *testing.T) {
	chromium(t)
	members := cluster(t)
	c := connect(t, members[0], "")
	fillStore(t, c)
	b := newBrowser(t, "http://"+members[0].Addr())
	b.open("keys")
	b.shows("config/")
	// What the page asks for is answered after 1.5 s.
	eval[any](b, `window.real = window.fetch, window.fetch = async (...a) => { await new Promise((r) => setTimeout(r, 1500)); return real(...a); }, 0`)
	for view, words := range map[string]string{
		"overview":                              "Measuring the members",
		"keys?prefix=services/":                 "Reading keys",
		"keys?k=config/app":                     "Reading the key",
		"keys?mode=pattern&q=web":               "Searching",
		"keys?at=" + time.Now().Format("15:04"): "Looking for the revision of",
		"history":                               "Reading revisions",
		"history?k=config/app":                  "Reading old revisions",
		"history?k=config/app&a=2&b=3":          "Comparing the revisions",
		"watches":                               "Reading the watchers",
		"watches?tail=load/":                    "(connecting)",
		"leases":                                "Reading leases",
		"access":                                "Reading users and roles",
		"members":                               "Measuring the members",
	} {
		// The words are there in the second frame after the change of the address.
		text := eval[string](b, fmt.Sprintf(`new Promise((done) => { location.hash = "#/nowhere"; requestAnimationFrame(() => setTimeout(() => { location.hash = %q;
			setTimeout(() => requestAnimationFrame(() => done(document.querySelector("main").innerText)), 50); })); })`, "#/"+view), chromedp.EvalAwaitPromise)
		if !strings.Contains(text, words) {
			t.Errorf("%s says nothing of what it waits for: %q", view, text)
		}
	}
	b.check()
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
