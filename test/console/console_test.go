package console

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"vigil/test/proc"
)

// cluster starts three members. Options are added to all.
func cluster(t *testing.T, args ...string) []*proc.Server {
	t.Helper()
	members, _ := initial(t, args...)
	return members
}

// initial is cluster, and returns the members as --initial-cluster has them.
func initial(t *testing.T, args ...string) ([]*proc.Server, string) {
	t.Helper()
	var names []string
	var members []*proc.Server
	ports := make([]int, 3)
	for i := range ports {
		ports[i] = proc.FreePort(t)
		names = append(names, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[i]))
	}
	for i := range ports {
		m := proc.New(t, proc.Config{Program: proc.Vigil, Name: fmt.Sprintf("m%d", i+1),
			Memory: true, PeerPort: ports[i], InitialCluster: strings.Join(names, ","), Args: args})
		m.Launch()
		members = append(members, m)
	}
	for _, m := range members {
		m.Ready()
	}
	return members, strings.Join(names, ",")
}

func connect(t *testing.T, m *proc.Server, user string) *clientv3.Client {
	t.Helper()
	c := clientv3.Config{Endpoints: []string{"http://" + m.Addr()}, DialTimeout: patience}
	if user != "" {
		c.Username, c.Password = user, "secret"
	}
	cl, err := clientv3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

func put(t *testing.T, c *clientv3.Client, key, value string, opts ...clientv3.OpOption) int64 {
	t.Helper()
	res, err := c.Put(t.Context(), key, value, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return res.Header.Revision
}

// load writes and reads until the test ends.
func load(t *testing.T, c *clientv3.Client) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = c.Put(ctx, fmt.Sprintf("load/%03d", i%200), fmt.Sprint("value ", i))
			_, _ = c.Get(ctx, "config/app")
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
}

const hostile = `<img src=x onerror="window.harmed=1"><script>window.harmed=1;<!--`

// fillStore writes what the views show.
func fillStore(t *testing.T, c *clientv3.Client) (first int64) {
	first = put(t, c, "config/app", `{"replicas": 2, "image": "web:1"}`)
	put(t, c, "config/app", `{"replicas": 3, "image": "web:2"}`)
	put(t, c, "config/db", "host: db\nport: 5432\n")
	for i := range 250 {
		put(t, c, fmt.Sprintf("services/web/%03d", i), "10.0.0.1")
	}
	put(t, c, "hostile/"+hostile, hostile)
	put(t, c, "hostile/bidi\u202egpj.exe", "a\u202eb\x1b[31m")
	put(t, c, "hostile/\xff\xfe binary", "\xff\x00\x01")
	put(t, c, "hostile/large", strings.Repeat("x", 1<<20))
	return first
}

func TestViews(t *testing.T) {
	chromium(t)
	members := cluster(t)
	c := connect(t, members[0], "")
	first := fillStore(t, c)
	session, err := concurrency.NewSession(c, concurrency.WithTTL(60))
	if err != nil {
		t.Fatal(err)
	}
	if err := concurrency.NewMutex(session, "locks/job").Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RoleAdd(t.Context(), "reader"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RoleGrantPermission(t.Context(), "reader", "config/", "config0",
		clientv3.PermissionType(clientv3.PermRead)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UserAdd(t.Context(), "alice", "secret"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.UserGrantRole(t.Context(), "alice", "reader"); err != nil {
		t.Fatal(err)
	}
	load(t, c)
	for _, m := range members[:2] {
		watching := connect(t, m, "").Watch(t.Context(), "services/", clientv3.WithPrefix())
		go func() {
			for range watching {
			}
		}()
	}
	hostileNames(t, c)
	b := newBrowser(t, "http://"+members[0].Addr())

	views := []struct {
		name, address string
		shows         []string
	}{
		{"overview", "overview",
			[]string{"3 of 3 members answer", "m1 (this)", "leader", "follower", "Puts", "/s",
				"could not be looked at"}},
		{"keys", "keys?k=config/app",
			[]string{"services/", "250 keys", "hostile/", "\"replicas\": 3", "Copy as etcdctl"}},
		{"search", "keys?mode=prefix&q=config/&sort=mod&desc=1&cols=mod,version,size,text",
			[]string{"2 keys", "config/db", "host: db↵port: 5432↵", "20 B", "Modified at \u25be"}},
		{"pattern", "keys?mode=pattern&q=services/*/01?",
			[]string{"10 keys match", "services/web/017"}},
		{"as-of", fmt.Sprintf("keys?k=config/app&rev=%d", first),
			[]string{"\"replicas\": 2", "back to the newest"}},
		{"history", fmt.Sprintf("history?k=config/app&a=%d&b=%d", first, first+1),
			[]string{"2 revisions", "-  \"image\": \"web:1\"", "+  \"image\": \"web:2\""}},
		{"timeline", "history?prefix=load/00",
			[]string{"Changes by time", "the newest first", "load/00"}},
		{"watches", "watches?filter=services", []string{"services/*", "live", "m2", "2 of"}},
		{"tail", "watches?tail=load/", []string{"load/0", "put"}},
		{"leases", "leases", []string{"locks/job", "1 lease"}},
		{"access", "access?who=config/app",
			[]string{"alice", "reader", "config/*", "Authentication is disabled",
				"Users that may read or write the key config/app"}},
		{"members", "members",
			[]string{"m3", "Download a snapshot…", "3 of 3 voting members answer"}},
	}
	for _, v := range views {
		t.Run(v.name, func(t *testing.T) {
			if testing.Short() &&
				!slices.Contains([]string{"overview", "keys", "history"}, v.name) {
				t.Skip("short")
			}
			b.t = t
			b.look(false, 1280)
			b.open(v.address)
			b.shows(v.shows...)
			if v.name == "overview" {
				points := 1
				if os.Getenv("VIGIL_SCREENSHOTS") != "" {
					points = 20 // a picture with lines
				}
				b.until(fmt.Sprintf(`document.querySelector(".now").innerText.includes("/s") && document.querySelector(".line").getAttribute("d").split("L").length > %d`, points))
				b.untilWell()
			}
			b.screenshot(v.name)
			for _, look := range []struct {
				dark  bool
				width int64
			}{{false, 1280}, {true, 400}, {true, 1280}, {false, 400}} {
				if testing.Short() && look.dark != (look.width == 400) {
					continue
				}
				b.look(look.dark, look.width)
				b.shows(v.shows[0])
				name := fmt.Sprintf("%s, dark %v, %d pixels wide", v.name, look.dark, look.width)
				b.accessible(name)
				b.narrow(name)
				if look.dark && look.width == 400 && (v.name == "keys" || v.name == "overview") {
					if v.name == "overview" {
						b.untilWell()
					}
					b.screenshot(v.name + "-narrow")
				}
			}
			b.check()
		})
	}
	b.t = t
	b.look(false, 1280)

	t.Run("hostile keys and values", func(t *testing.T) {
		b.t = t
		b.open("keys?prefix=hostile/")
		b.shows(`<img src=x onerror="window.harmed=1">`, `bidi\u{202e}gpj.exe`, `\xff\xfe binary`)
		for _, key := range []string{hostile, `bidi\u{202e}gpj.exe`, `\xff\xfe binary`, "large"} {
			b.click(key)
			b.shows("Modified at")
			if key == hostile {
				b.shows(hostile)
			}
			b.click("close")
		}
		b.open("watches?tail=x&rev=abc")
		b.shows("No event yet")
		b.open("keys?k=base64:!!")
		b.shows("Keys")
		b.open("nowhere")
		b.shows("names no view")
		b.until("window.harmed === undefined")
		b.check()
	})

	t.Run("hostile names of users and roles", func(t *testing.T) {
		b.t = t
		b.open("access")
		b.shows(hostile, `eve\u{202e}toor`)
		b.until("window.harmed === undefined")
		b.accessible("hostile names")
		b.check()
	})

	t.Run("wrong revisions and times in addresses", func(t *testing.T) {
		b.t = t
		for _, c := range []struct{ address, shows, next string }{
			{"keys?rev=abc", "want a number", "Next: correct it"},
			{"keys?rev=-1", "want a number", "Next: correct it"},
			{"keys?rev=1.5", "want a number", "Next: correct it"},
			{"keys?rev=99999999999999999999", "want a number", "Next: correct it"},
			{"keys?rev=99999999", "future revision", "Next: choose an older revision"},
			{"keys?k=config/app&rev=99999999", "future revision", "Next: choose an older revision"},
			{"keys?mode=prefix&q=c&rev=<b>", "want a number", "Next: correct it"},
			{"keys?at=yesterday", "“yesterday” is neither a revision nor a time",
				"Next: write a number, or a time"},
			{"keys?at=2026-13-01", "“2026-13-01” is neither a revision nor a time",
				"Next: write a number, or a time"},
			{"keys?at=2100-01-01", "2100-01-01 00:00:00 is in the future",
				"Next: choose an older revision"},
			{"keys?at=1970-01-02", "the first known time is", "Next: correct it"},
			{"keys?at=99999999999h", "want a number", "Next: correct it"},
			{"history?k=config/app&a=x&b=2", "want a number", "Next: correct it"},
			{"history?k=config/app&a=2&b=99999999", "future revision",
				"Next: choose an older revision"},
			{"history?from=abc", "“abc” is neither a revision nor a time",
				"Next: write a number, or a time"},
			{"history?from=9&to=x", "“x” is neither a revision nor a time",
				"Next: write a number, or a time"},
			{"history?from=9&to=3", "must not be after the last", "Next: correct it"},
			{"history?from=99999999", "the store is at", "Next: correct it"},
			{"history?from=1&to=99999999", "the store is at", "Next: correct it"},
			{"history?to=99999999999999999999", "want a number", "Next: correct it"},
			{"leases?after=zz", "is not a number in hexadecimal digits", "Next: correct it"},
		} {
			b.open(c.address)
			b.shows(c.shows, c.next)
		}
		b.accessible("a wrong revision")
		b.check()
	})

	t.Run("a compacted revision in an address", func(t *testing.T) {
		b.t = t
		old := put(t, c, "compacted", "one")
		before := marked(t, c)
		now := put(t, c, "compacted", "two")
		if _, err := c.Compact(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		for _, view := range []string{"keys?k=compacted&rev=%d", "keys?rev=%d",
			"keys?mode=prefix&q=c&rev=%d", "keys?mode=pattern&q=c*&rev=%d"} {
			b.open(fmt.Sprintf(view, old))
			b.shows("has been compacted", "Next: choose a newer revision")
		}
		b.open("keys?k=compacted&at=" + before.Format(time.RFC3339Nano))
		b.shows("has been compacted at revision", "the first time that can be read is",
			"Next: choose a newer revision")
		b.open(fmt.Sprintf("history?k=compacted&a=%d&b=%d", old, now))
		b.shows("has been compacted")
		b.open(fmt.Sprintf("history?from=%d&to=%d", old, now))
		b.shows("are compacted")
		b.check()
	})

	t.Run("an edit, and a conflict", func(t *testing.T) {
		b.t = t
		put(t, c, "edit/me", "one")
		b.open("keys?k=edit/me")
		b.shows("one")
		b.click("Edit")
		b.fill("Value", "two")
		b.click("Write")
		b.until(`!document.querySelector("dialog[open]")`)
		b.until(`document.querySelector("pre.value")?.innerText === "two"`)
		b.click("Edit")
		b.fill("Value", "mine")
		put(t, c, "edit/me", "theirs")
		b.click("Write")
		b.shows("the key was changed by somebody else", "theirs")
		b.accessible("conflict")
		b.screenshot("conflict")
		if got := value(t, c, "edit/me"); got != "theirs" {
			t.Fatalf("the key is %q: the change of somebody else was overwritten", got)
		}
		b.click("I have seen it: replace it with mine")
		b.click("Write")
		b.until(`!document.querySelector("dialog[open]")`)
		if got := value(t, c, "edit/me"); got != "mine" {
			t.Fatalf("the key is %q", got)
		}
		b.check()
	})

	if testing.Short() {
		return
	}

	t.Run("deletion of a prefix", func(t *testing.T) {
		b.t = t
		for i := range 3 {
			put(t, c, fmt.Sprint("gone/", i), "x")
		}
		b.open("keys?prefix=gone/")
		b.click("Delete…")
		b.shows("3 keys begin with")
		b.accessible("deletion")
		b.fill("Type", "3")
		b.click("Delete 3 keys")
		b.until(`!document.querySelector("dialog[open]")`)
		if res, err := c.Get(t.Context(), "gone/", clientv3.WithPrefix(),
			clientv3.WithCountOnly()); err != nil || res.Count != 0 {
			t.Fatalf("%v keys are left, %v", res, err)
		}
		b.check()
	})

	t.Run("keyboard", func(t *testing.T) {
		b.t = t
		b.open("keys")
		b.shows("config/")
		b.run(keys("/"))
		b.until(`document.activeElement.id === "search"`)
		b.run(blur(), ctrlK())
		b.until(`document.querySelector("dialog[open]")`)
		b.run(keys("config/db"))
		b.shows("Open the key config/db")
		b.accessible("palette")
		b.screenshot("palette")
		b.run(keys("\r"))
		b.shows("5432")
		b.check()
	})

	t.Run("the data of the members are compared", func(t *testing.T) {
		b.t = t
		b.open("overview")
		b.click("Compare the data of the members…")
		b.shows("Each member reads its whole store once", "Members keep serving")
		b.accessible("comparison, before")
		b.click("Compare")
		b.shows("The members hold the same data at revision", "Hash of the history up to revision")
		b.until(`new Set([...document.querySelectorAll("[aria-label=Hashes] td.mono")].map((e) => e.innerText)).size === 1 && document.querySelectorAll("[aria-label=Hashes] td.mono").length === 3`)
		b.accessible("comparison")
		b.look(true, 400)
		b.accessible("comparison at 400 pixels")
		b.narrow("comparison")
		b.look(false, 1280)
		b.check()
	})

	t.Run("a member is killed while one looks", func(t *testing.T) {
		b.t = t
		b.open("overview")
		b.shows("3 of 3 members answer")
		members[2].Kill()
		b.shows("2 of 3 members answer", "does not answer", "one more failure stops all writes")
		b.accessible("overview with a problem")
		b.screenshot("overview-problem")
		b.click("Compare the data of the members…")
		b.click("Compare")
		b.shows("Not all members could be compared at revision",
			"not checked: m3, everything: it does not answer")
		members[2].Restart()
		b.shows("3 of 3 members answer")
		b.check()
	})

	t.Run("the member of the page is killed", func(t *testing.T) {
		b.t = t
		b.open("overview")
		b.shows("3 of 3 members answer")
		members[0].Kill()
		b.shows("does not answer")
		members[0].Restart()
		b.until(`!document.querySelector("[role=alert]")`)
		b.shows("3 of 3 members answer")
		b.check()
	})
}

// hostileNames adds a user and a role whose names are markup, and a user whose name is read
// backwards.
func hostileNames(t *testing.T, c *clientv3.Client) {
	t.Helper()
	if _, err := c.RoleAdd(t.Context(), hostile); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{hostile, "eve\u202etoor"} {
		if _, err := c.UserAdd(t.Context(), name, "secret"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.UserGrantRole(t.Context(), name, hostile); err != nil {
			t.Fatal(err)
		}
	}
}

func value(t *testing.T, c *clientv3.Client, key string) string {
	t.Helper()
	res, err := c.Get(t.Context(), key)
	if err != nil || len(res.Kvs) != 1 {
		t.Fatalf("%v, %v", res, err)
	}
	return string(res.Kvs[0].Value)
}
