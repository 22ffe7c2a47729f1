package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"vigil/test/proc"
)

// TestForeignPages: a page of another origin, on the same machine, can neither show the console in
// a frame nor post to it nor read it.
func TestForeignPages(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true, Args: []string{"--cors=*"}})
	c := connect(t, m, "")
	put(t, c, "config/app", "mine")
	member := "http://" + m.Addr()
	const body = `{"key":"Y29uZmlnL2FwcA==","value":"dGhlaXJz","mod":2}` // config/app, theirs
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>evil</title><iframe id="frame" src="%[1]s/console/"></iframe><iframe name="sink"></iframe>
<form id="form" method="post" enctype="text/plain" target="sink" action="%[1]s/console/api/put"><input name='%[2]s'></form>
<script>
window.done = [];
const note = (name, p) => p.then((r) => r.text().then((t) => done.push(name + ": " + r.type + " " + t)), (e) => done.push(name + ": refused"));
const all = [
  note("read", fetch("%[1]s/console/api/session")),
  note("read with the header", fetch("%[1]s/console/api/session", {headers: {"X-Vigil-Console": "1"}})),
  note("write", fetch("%[1]s/console/api/put", {method: "POST", body: '%[2]s'})),
  note("write with the header", fetch("%[1]s/console/api/put", {method: "POST", headers: {"X-Vigil-Console": "1"}, body: '%[2]s', credentials: "include"})),
  note("blind write", fetch("%[1]s/console/api/put", {method: "POST", mode: "no-cors", body: '%[2]s'})),
];
let sunk = new Promise((r) => document.querySelector("[name=sink]").onload = r);
document.getElementById("form").submit();
Promise.all([...all, sunk]).then(() => window.finished = true);
</script>`, member, body)
	}))
	defer evil.Close()
	b := newBrowser(t, member)
	b.other = evil.URL
	b.run(chromedp.Navigate(evil.URL + "/"))
	b.until("window.finished")
	for _, line := range eval[[]string](b, "window.done") {
		if !strings.HasSuffix(line, ": refused") && line != "blind write: opaque " {
			t.Errorf("a page of another origin: %s", line)
		}
	}
	if eval[bool](b, `(() => { try { return !!document.getElementById("frame").contentDocument?.title } catch { return false } })()`) {
		t.Error("the console is in a frame, and readable")
	}
	if trouble := b.takeTrouble(); !strings.Contains(trouble, "frame-ancestors") &&
		!strings.Contains(trouble, "X-Frame-Options") {
		t.Errorf("nothing says that the frame was refused: %s", trouble)
	}
	if got := value(t, c, "config/app"); got != "mine" {
		t.Errorf("another origin has written %q", got)
	}
	// The page itself works, so that something else than a broken member has refused.
	b.open("keys?k=config/app")
	b.shows("mine")
	b.check()
}
