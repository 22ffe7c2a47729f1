package console

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	cdp "github.com/chromedp/cdproto/browser"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// TestMoving: keys are exported as lines of JSON and imported again, binary ones and large ones
// too.
func TestMoving(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	want := map[string]string{"move/a": "text", "move/\xff\x00": "\x00\xfe",
		"move/" + hostile: hostile, "move/line\nend": "a\u202eb\n", "move/empty": ""}
	for k, v := range want {
		put(t, c, k, v)
	}
	put(t, c, "other", "stays")
	b := newBrowser(t, "http://"+m.Addr())
	dir := t.TempDir()
	call(b, cdp.SetDownloadBehavior,
		cdp.SetDownloadBehaviorParams{Behavior: cdp.SetDownloadBehaviorBehaviorAllow,
			DownloadPath: dir})
	b.open("keys?prefix=move/")
	b.click("Export…")
	b.accessible("export")
	b.click("Export")
	var text []byte
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		var err error
		if text, err = os.ReadFile(filepath.Join(dir, "keys.jsonl")); err == nil && len(text) > 0 &&
			text[len(text)-1] == '\n' {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no file: %v\npage:\n%s", err, b.text())
		}
	}
	if _, err := c.Delete(t.Context(), "move/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	put(t, c, "move/a", "newer")

	lines, _ := json.Marshal(string(text))
	choose := `void ((f) => { const d = new DataTransfer(); d.items.add(new File([` +
		string(lines) + `], "keys.jsonl")); f.files = d.files; f.dispatchEvent(new Event("change", {bubbles: true})); })(document.querySelector("dialog input[type=file]"))`
	b.click("Import…")
	b.until(`document.querySelector("dialog input[type=file]")`)
	b.accessible("import")
	eval[any](b, choose+", 0")
	b.click("Import")
	b.shows("4 keys written, 1 existed already, 0 lines without a key")
	if got := value(t, c, "move/a"); got != "newer" {
		t.Errorf("an import without leave has replaced a key: %q", got)
	}
	b.click("Close")
	b.click("Import…")
	eval[any](b, choose+", 0")
	eval[any](b, `document.querySelector("dialog input[type=checkbox]").click(), 0`)
	b.click("Import")
	b.shows("5 keys written, 0 existed already")
	res, err := c.Get(t.Context(), "move/", clientv3.WithPrefix())
	if err != nil || len(res.Kvs) != len(want) {
		t.Fatalf("%v, %v", res, err)
	}
	for _, kv := range res.Kvs {
		if v, ok := want[string(kv.Key)]; !ok || v != string(kv.Value) {
			t.Errorf("the key %q is %q, want %q", kv.Key, kv.Value, v)
		}
	}
	b.check()
}
