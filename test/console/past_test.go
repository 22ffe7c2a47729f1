package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
	"vigil/test/proc"
)

// marked waits until the cluster has recorded a time after everything that was written before the
// call, and returns such a time. It writes for that: times are recorded while keys are written.
func marked(t *testing.T, c *clientv3.Client) time.Time {
	t.Helper()
	before := put(t, c, "marks", "before")
	written := time.Now()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		now := time.Now().Add(-time.Millisecond)
		put(t, c, "marks", "after")
		if now.Before(written.Add(time.Second)) {
			continue
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "vigil-at",
			fmt.Sprint(now.UnixMilli()))
		res, err := c.Get(ctx, "marks")
		if err == nil && len(res.Kvs) == 1 && res.Kvs[0].ModRevision >= before {
			return now
		}
	}
	t.Fatal("no time was recorded")
	return time.Time{}
}

// TestPast shows the past by time: each change of a key and of the store with its time, in the zone
// of the reader, and the keys as of a time.
func TestPast(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	// what was written before the first mark has no time at which it was not written yet
	start := marked(t, c)
	first := put(t, c, "config/app", "one")
	between := marked(t, c)
	second := put(t, c, "config/app", "two")
	put(t, c, "config/new", "later")
	end := marked(t, c)
	b := newBrowser(t, "http://"+m.Addr())

	// The reader is in another zone than this process.
	const zone = "Asia/Kolkata"
	there, err := time.LoadLocation(zone)
	if err != nil {
		there = time.FixedZone("IST", 5*3600+1800)
	}
	call(b, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})
	// whenOf returns the time that a row says, which the reader understands as one of today or with
	// a date.
	whenOf := func(row string) time.Time {
		t.Helper()
		find := fmt.Sprintf(`[...document.querySelectorAll("main tbody tr")].find((r) => r.innerText.includes(%q))`, row)
		b.until(find)
		text := eval[string](b, find+`.querySelector("td span[title]").innerText`)
		title := eval[string](b, find+`.querySelector("td span[title]").title`)
		if !strings.Contains(title, zone) && !strings.Contains(title, "Asia/Calcutta") ||
			!strings.Contains(title, "by the clock of the leader") {
			t.Errorf("the title of %q is %q", text, title)
		}
		for _, format := range []string{"2006-01-02 15:04:05", "15:04:05"} {
			at, err := time.ParseInLocation(format, text, there)
			if err != nil {
				continue
			}
			if format == "15:04:05" {
				y, mo, d := time.Now().In(there).Date()
				at = at.AddDate(y, int(mo)-1, d-1)
			}
			return at
		}
		t.Fatalf("%q is no time", text)
		return time.Time{}
	}
	within := func(what string, at, from, to time.Time) {
		t.Helper()
		if at.Before(from.Truncate(time.Second)) || at.After(to.Add(3*time.Second)) {
			t.Errorf("%s is shown at %v, it was made from %v to %v", what, at, from, to)
		}
	}

	b.open("history?k=config/app")
	b.shows("2 revisions")
	within("the first change", whenOf("one"), start, between)
	within("the second change", whenOf("two"), between, end)
	b.accessible("history with times")
	b.open(fmt.Sprintf("history?from=%d&to=%d", first, second+1))
	b.shows("Changes by time")
	within("the first change of the store", whenOf("created"), start, between)
	b.until(`document.querySelectorAll(".ends span").length === 3 && document.querySelectorAll("svg.bars rect").length > 0`)
	b.until(`/^\d\d:\d\d:\d\d$/.test(document.querySelector(".ends span").textContent)`)
	b.accessible("time line")

	// The store between two times: what was written since.
	b.open("history")
	b.fill("From", between.In(there).Format("15:04:05.000"))
	b.click("Show")
	b.shows("config/new")
	b.until(`!document.querySelector("main tbody").innerText.includes("` +
		fmt.Sprint(first) + `\t")`)
	if hash := eval[string](b, "decodeURIComponent(location.hash)"); !strings.Contains(hash,
		"from="+between.UTC().Format("2006-01-02T15:04:05.000Z")) {
		t.Errorf("the address of changes since %v is %s", between.UTC(), hash)
	}

	// The keys as of a time.
	b.open("keys?k=config/app")
	b.shows("two", "config/")
	b.until(`/^\d\d:\d\d:\d\d$/.test([...document.querySelectorAll("dl.facts div")].find((d) => d.innerText.startsWith("When")).querySelector("dd").innerText)`)
	b.fill("as of a revision or time", between.In(there).Format("15:04:05.000"))
	b.click("Show")
	b.shows("one", "as of "+between.In(there).Format("15:04:05")+", revision", "back to the newest")
	b.accessible("as of a time")
	address := eval[string](b, "location.hash")
	if !strings.Contains(address, "at=") || strings.Contains(address, "rev=") {
		t.Errorf("the address is %s", address)
	}
	b.open(strings.TrimPrefix(address, "#/"))
	b.shows("one")
	b.open("keys?mode=prefix&q=config/&at=" + between.UTC().Format(time.RFC3339Nano))
	b.shows("1 key")
	b.open("keys?mode=prefix&q=config/&at=" + between.In(there).Format("2006-01-02 15:04:05.000"))
	b.shows("1 key")
	b.click("back to the newest")
	b.shows("2 keys")
	// As of a relative time: that time, whenever somebody opens the address.
	b.open("keys")
	b.fill("as of a revision or time", "0s")
	b.click("Show")
	b.shows("as of")
	if hash := eval[string](b,
		"decodeURIComponent(location.hash)"); !strings.Contains(hash, "at=20") {
		t.Errorf("the address of a relative time is %s", hash)
	}
	b.check()
}

// TestUnknownTimes: a page says what it does not know of a time. The answers of the member are
// changed on their way into the page, since a member knows the times of nearly everything that a
// test can write.
func TestUnknownTimes(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	put(t, c, "only", "one")
	b := newBrowser(t, "http://"+m.Addr())
	b.open("keys")
	b.shows("only")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.Local)
	for _, x := range []struct {
		from, to time.Time
		shows    string
	}{
		{shows: "not known"},
		{from: at, shows: "after 2026-03-01 12:00:00"},
		{to: at, shows: "before 2026-03-01 12:00:00"},
		{from: at.Add(-time.Hour), to: at, shows: "2026-03-01 11:00:00 – 2026-03-01 12:00:00"},
		{from: at.Add(-time.Second), to: at, shows: "2026-03-01 12:00:00"},
	} {
		ms := func(t time.Time) int64 {
			if t.IsZero() {
				return 0
			}
			return t.UnixMilli()
		}
		eval[any](b, fmt.Sprintf(`window.real ||= window.fetch, window.fetch = async (...a) => {
			const r = await real(...a);
			if (!String(a[0]).startsWith("api/history")) return r;
			const answer = await r.json();
			for (const v of answer.versions) { v.from = %d; v.to = %d; }
			return new Response(JSON.stringify(answer));
		}, location.hash = "#/keys", 0`, ms(x.from), ms(x.to)))
		b.until(`document.querySelector("h1").innerText === "Keys"`)
		eval[any](b, `location.hash = "#/history?k=only", 0`)
		b.until(fmt.Sprintf(`document.querySelector("main tbody tr")?.children[4].innerText === %q`,
			x.shows))
	}
	b.check()
}

// TestTypedAtOnce types into the fields for the past as soon as they exist, as on a slow machine:
// what is typed stays.
func TestTypedAtOnce(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	put(t, c, "config/app", "one")
	put(t, c, "config/app", "two")
	b := newBrowser(t, "http://"+m.Addr())
	for _, v := range []struct{ view, field, text, shown string }{
		{"history", "from a revision or time", "2", "the newest first"},
		{"keys", "as of a revision or time", "2", "config/"},
	} {
		b.open("members")
		b.shows("m1")
		field := fmt.Sprintf("document.querySelector('input[aria-label=%q]')", v.field)
		eval[chromedp.Void](b, fmt.Sprintf(`void (new MutationObserver((_, o) => {
			const e = %s;
			if (!e) return;
			o.disconnect();
			e.value = %q;
			e.dispatchEvent(new Event("input", {bubbles: true}));
		}).observe(document.body, {childList: true, subtree: true}), location.hash = "#/%s")`, field, v.text, v.view))
		b.shows(v.shown) // effects have run: they ask for it
		if got := eval[string](b, field+".value"); got != v.text {
			t.Errorf("%s: %q is left of %q", v.view, got, v.text)
		}
	}
}
