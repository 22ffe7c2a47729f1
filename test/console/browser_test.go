// Package console runs the console in headless Chromium against real members. Without Chromium the
// tests are skipped, unless VIGIL_BROWSER=1 demands it.
package console

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

//go:embed third_party/axe-core/axe.min.js
var axe string

// patience is how long a test waits for a condition. Only a failing test waits this long.
const patience = 60 * time.Second

func chromium(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("VIGIL_BROWSER") != "" {
		t.Fatal("there is no Chromium")
	}
	t.Skip("there is no Chromium")
	return ""
}

// browser is a running Chromium with one tab at a time.
type browser struct {
	t   testing.TB
	ctx context.Context
	url string // of the member
	dir string // its profile
	// other is an address that the page of a test may contact, too.
	other string

	mu struct {
		sync.Mutex
		// troubles are errors in the console of the browser, and requests to other hosts.
		troubles []string
	}
}

// newBrowser starts a Chromium that ends with the test. It fails the test if the page logs an error
// or contacts another host.
func newBrowser(t testing.TB, url string, more ...chromedp.ExecAllocatorOption) *browser {
	t.Helper()
	dir := t.TempDir()
	opts := append([]chromedp.ExecAllocatorOption{chromedp.ExecPath(chromium(t)),
		chromedp.UserDataDir(dir), chromedp.Headless, chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck, chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-sync", true),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WindowSize(1280, 900)}, more...)
	alloc, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(alloc)
	b := &browser{t: t, ctx: ctx, url: url, dir: dir}
	t.Cleanup(func() {
		// waits until the process has ended, so that its directory can be removed
		_ = chromedp.Cancel(ctx)
		cancel()
		stop()
	})
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
		t.Fatal(err)
	}
	err := chromedp.Listen(ctx, func(ev any) {
		switch e := ev.(type) {
		case *runtime.EventExceptionThrown:
			b.trouble(fmt.Sprintf("exception: %+v", e.ExceptionDetails))
		case *log.EventEntryAdded:
			if strings.Contains(e.Entry.Text, "Content Security Policy") ||
				strings.Contains(e.Entry.Text, "Refused to") {
				b.trouble(e.Entry.Text)
			}
		case *network.EventRequestWillBeSent:
			if u := e.Request.URL; !strings.HasPrefix(u, url+"/console/") &&
				(b.other == "" || !strings.HasPrefix(u, b.other)) &&
				!strings.HasPrefix(u, "data:") && !strings.HasPrefix(u, "blob:") &&
				!strings.HasPrefix(u, "about:") {
				b.trouble("request to " + u)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	call(b, network.Enable, network.EnableParams{})
	call(b, log.Enable, cdp.Empty{})
	call(b, runtime.Enable, cdp.Empty{})
	return b
}

func (b *browser) trouble(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.troubles = append(b.mu.troubles, text)
}

// trouble returns what there was, and forgets it.
func (b *browser) takeTrouble() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := strings.Join(b.mu.troubles, "\n")
	b.mu.troubles = nil
	return text
}

// check fails the test if there was trouble.
func (b *browser) check() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, text := range b.mu.troubles {
		b.t.Errorf("in the browser: %s", text)
	}
	b.mu.troubles = nil
}

func (b *browser) run(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		b.t.Fatalf("%v\npage:\n%s", err, b.text())
	}
}

// call sends a command of the protocol.
func call[P, R any](b *browser, cmd cdp.Command[P, R], params P) R {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	res, err := chromedp.Call(ctx, cmd, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

// eval returns the value of an expression.
func eval[T any](b *browser, expression string, opts ...chromedp.EvaluateOption) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, opts...))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return v
}

// open opens a view, as a deep link does.
func (b *browser) open(view string) {
	b.t.Helper()
	b.run(chromedp.Navigate("about:blank"),
		chromedp.Navigate(b.url+"/console/#/"+strings.ReplaceAll(view, " ", "%20")))
}

// text returns the text of the page.
func (b *browser) text() (text string) {
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	text, _ = chromedp.Run(ctx, chromedp.Evaluate[string](`document.body.innerText`))
	return text
}

// until waits until an expression is true.
func (b *browser) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for {
		ok, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		if ok {
			return
		}
		if ctx.Err() != nil {
			b.t.Fatalf("%s never became true: %v\npage:\n%s", expression, err, b.text())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// shows waits until the page has a text.
func (b *browser) shows(texts ...string) {
	b.t.Helper()
	for _, text := range texts {
		q, _ := json.Marshal(text)
		b.until("document.body.innerText.includes(" + string(q) + ")")
	}
}

// click clicks the first button, link or other element with a text or a label.
func (b *browser) click(text string) {
	b.t.Helper()
	q, _ := json.Marshal(text)
	find := `[...(document.querySelector("dialog[open]") || document).querySelectorAll("button, a, [role=option]")].find((e) => !e.disabled && (e.innerText?.trim() === ` + string(q) + ` || e.getAttribute("aria-label") === ` + string(q) + `))`
	b.until(find)
	eval[chromedp.Void](b, "void ("+find+").click()")
}

// fill types into the field with a label.
func (b *browser) fill(label, value string) {
	b.t.Helper()
	l, _ := json.Marshal(label)
	v, _ := json.Marshal(value)
	find := `[...(document.querySelector("dialog[open]") || document).querySelectorAll("input, textarea, select")].find((e) => e.getAttribute("aria-label") === ` + string(l) + ` || (e.closest("label")?.innerText || "").trim().startsWith(` + string(l) + `))`
	b.until(find)
	eval[chromedp.Void](b,
		`void ((e) => { Object.getOwnPropertyDescriptor(Object.getPrototypeOf(e), "value").set.call(e, `+string(v)+`); e.dispatchEvent(new Event("input", {bubbles: true})); e.dispatchEvent(new Event("change", {bubbles: true})); })(`+find+`)`)
}

// accessible runs axe on the page.
func (b *browser) accessible(view string) {
	b.t.Helper()
	script := axe + `; axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify(r.violations.map((v) => v.id + ": " + v.help + " " + v.nodes.slice(0, 3).map((n) => n.html + " " + n.failureSummary).join("; "))))`
	result := eval[string](b, script, chromedp.EvalAwaitPromise)
	var list []string
	if err := json.Unmarshal([]byte(result), &list); err != nil {
		b.t.Fatalf("axe: %v: %s", err, result)
	}
	for _, v := range list {
		b.t.Errorf("%s: axe: %s", view, v)
	}
}

// look selects the dark or the light colours, and the width of the page.
func (b *browser) look(dark bool, width int64) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	call(b, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	b.run(chromedp.EmulateViewport(width, 900))
}

// narrow fails the test if the page must be scrolled sideways.
func (b *browser) narrow(view string) {
	b.t.Helper()
	if over := eval[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
		b.t.Errorf("%s is %d pixels wider than the window", view, over)
	}
}

// untilWell waits, before a picture, until the overview says that nothing is wrong. A busy machine
// makes members slow, which it reports.
func (b *browser) untilWell() {
	b.t.Helper()
	if os.Getenv("VIGIL_SCREENSHOTS") != "" {
		b.until(`document.querySelector(".verdict.good").innerText.includes("Nothing is wrong")`)
	}
}

// screenshot writes a picture for the documents, if VIGIL_SCREENSHOTS names their folder.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	dir := os.Getenv("VIGIL_SCREENSHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
