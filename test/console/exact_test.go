package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// odd are values that a text field or a decoder could change. Each has the letter X once, except
// for the empty one.
var odd = map[string]string{
	"empty":                 "",
	"text":                  "one\nX\nthree",
	"CRLF":                  "one\r\nX\r\nthree\r\n",
	"CR":                    "one\rX\rthree\r",
	"LF and CRLF":           "one\r\nX\nthree\r\n",
	"CR, LF and CRLF":       "\rone\r\r\n\nX\n\r\n",
	"LF at both ends":       "\n\nX\n\n",
	"CRLF at the beginning": "\r\nX",
	"NUL":                   "a\x00X\x00",
	"byte order mark":       "\ufeffX",
	"no UTF-8":              "\xff\xfeX\r\n\x80\n\x00",
	"half a character":      "X\xe2\x82",
	"a surrogate":           "X\xed\xa0\x80",
	"composed":              "\u00e9X",
	"decomposed":            "e\u0301X\u212b",
	"separators":            "a\u2028X\u2029\u0085",
	"tabs and spaces":       "\t X\t\u00a0 \t ",
	"a long line":           strings.Repeat("long ", 40_000) + "X",
	"duplicate fields":      `{"a": 1, "a":2,"b" : 12345678901234567890.10, "X":1e400}`,
	"indentation":           "{\n      \"a\":1,\r\n\"X\": [ ]}",
	"YAML":                  "a:   1 # X\nb: |\n  x\n\n",
	"protobuf":              "\x0a\x03abc\x10\x96\x01\x1a\x01X",
	"gzip":                  "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03X",
	"markup":                "</textarea><b>X&amp;&#13;",
	"escapes":               `\xff \u{d} \\u{41} \n X \`,
	"escapes and NUL":       "\\xff \\u{d} \\\\u{41} \\n X\x00 \\",
	"emoji":                 "\U0001f469\u200d\U0001f680X",
	"right to left":         "a\u202eX",
}

// TestExactBytes: an edit of a value changes what was edited and nothing else, whatever the value
// is.
func TestExactBytes(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	b := newBrowser(t, "http://"+m.Addr())
	write := func(key string, act func(shown string)) string {
		t.Helper()
		b.open("keys?k=" + key)
		b.click("Edit")
		b.until(`document.querySelector("dialog textarea")`)
		act(eval[string](b, `document.querySelector("dialog textarea").value`))
		before := eval[int](b,
			`Number(/revision (\d+)/.exec(document.querySelector("dialog").innerText)[1])`)
		b.click("Write")
		b.until(`!document.querySelector("dialog[open]")`)
		res, err := c.Get(t.Context(), key)
		if err != nil || len(res.Kvs) != 1 || res.Kvs[0].ModRevision == int64(before) {
			t.Fatalf("%v, %v: was it written after revision %d?", res, err, before)
		}
		return string(res.Kvs[0].Value)
	}
	for name, value := range odd {
		key := "exact/" + strings.ReplaceAll(name, " ", "-")
		put(t, c, key, value)
		if got := write(key, func(string) {}); got != value {
			t.Errorf("%s: written without a change it is %.100q, was %.100q", name, got, value)
		}
		changed := strings.Replace(value, "X", "Y\u00e9", 1)
		if name == "empty" {
			changed = "Y\u00e9"
		}
		put(t, c, key, value)
		if got := write(key, func(shown string) {
			if strings.Count(shown, "X") != strings.Count(value, "X") {
				t.Errorf("%s: the field shows %.100q", name, shown)
			}
			if name == "empty" {
				shown = "X"
			}
			b.fill("Value", strings.Replace(shown, "X", "Y\u00e9", 1))
		}); got != changed {
			t.Errorf("%s: with another letter it is %.100q, want %.100q", name, got, changed)
		}
	}
	// Large values are edited, too.
	large := []byte(strings.Repeat("\x00\xff\r\n binary", 20_000) + "X")
	put(t, c, "exact/large", string(large))
	start := time.Now()
	if got := write("exact/large", func(string) {}); got != string(large) {
		t.Errorf("%d bytes that are no text are written as %d others", len(large), len(got))
	}
	t.Logf("an edit of %d bytes that are no text took %.1f s", len(large),
		time.Since(start).Seconds())
	// A line that is added has the line ends of the others.
	put(t, c, "exact/CRLF", "one\r\ntwo\r\n")
	if got := write("exact/CRLF",
		func(shown string) { b.fill("Value", shown+"three\n") }); got != "one\r\ntwo\r\nthree\r\n" {
		t.Errorf("a line was added to lines with CRLF: %q", got)
	}
	b.accessible("edit")
	b.check()
}

// TestExactKeys: a key that a field of a form would change is created, found, exported and deleted
// as it is.
func TestExactKeys(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	b := newBrowser(t, "http://"+m.Addr())
	for i, folder := range []string{"plain/", "a\nb\r\n/", "\xff\x00/", "\ufeffx/",
		`back\x41\u{41}\/`, "a b /", "base64:YQ==/", "bidi\u202e/"} {
		put(t, c, folder+"one", fmt.Sprint("value ", i))
		put(t, c, "other", "stays")
		b.open("keys?prefix=base64:" + b64(folder))
		b.shows("one")
		// A new key in the folder.
		b.click("New key")
		prefilled := eval[string](b, `document.querySelector("dialog input").value`)
		b.fill("Key", prefilled+"new")
		b.fill("Value", "made")
		b.click("Write")
		b.until(`!document.querySelector("dialog[open]")`)
		if res, err := c.Get(t.Context(), folder, clientv3.WithPrefix()); err != nil ||
			len(res.Kvs) != 2 || string(res.Kvs[0].Key) != folder+"new" ||
			string(res.Kvs[0].Value) != "made" {
			t.Fatalf("%q: %v, %v", folder, res, err)
		}
		// The address of a search is shown in the fields, and searched again.
		b.open("keys?mode=prefix&q=base64:" + b64(folder))
		b.until(`document.querySelectorAll("main tbody tr").length === 2`)
		field := eval[string](b, `document.getElementById("search").value`)
		b.fill("search keys", "other")
		b.click("Search")
		b.until(`document.querySelectorAll("main tbody tr").length === 1`)
		b.fill("search keys", field)
		b.click("Search")
		b.until(`document.querySelectorAll("main tbody tr").length === 2`)
		// The same field for the history of the store, and for who may read a key.
		b.open("history?prefix=base64:" + b64(folder))
		b.until(`document.querySelectorAll("main tbody tr").length === 2`)
		b.click("Show")
		b.until(`document.querySelectorAll("main tbody tr").length === 2`)
		if got := eval[string](b, `document.getElementById("search").value`); got != field {
			t.Errorf("%q: the history is of %q, want %q", folder, got, field)
		}
		b.open("access?who=base64:" + b64(folder))
		if got := eval[string](b,
			`(() => { const f = document.getElementById("search"); return f ? f.value : "" })()`); got != "" && got != field {
			t.Errorf("%q: the field of who may read it has %q", folder, got)
		}
		// The folder is deleted, and nothing else.
		b.open("keys?prefix=base64:" + b64(folder))
		b.click("Delete…")
		b.shows("2 keys begin with")
		b.fill("Type", "2")
		b.click("Delete 2 keys")
		b.until(`!document.querySelector("dialog[open]")`)
		if res, err := c.Get(t.Context(), "", clientv3.WithPrefix()); err != nil ||
			len(res.Kvs) != 1 {
			t.Fatalf("%q: %v, %v", folder, res, err)
		}
	}
	b.check()
}

// TestExactImport: lines that a decoder would change are rejected.
func TestExactImport(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	b := newBrowser(t, "http://"+m.Addr())
	b.open("keys")
	for _, x := range []struct{ line, shows, value string }{
		{"{\"key\":\"a\",\"value\":\"\xff\"}", "the file is not UTF-8", ""},
		{`{"key":"a","value":"\ud800"}`, "not UTF-8: write an object with base64", ""},
		{`{"key":"a\udc00\ud800","value":"x"}`, "not UTF-8: write an object with base64", ""},
		{`{"key":"a","value":"\ufffd \\ud800 \ud83d\ude00` + "\ufffd\r\n\"}",
			"invalid character", ""},
		{`{"key":"a","value":"\ufffd \\ud800 \ud83d\ude00` + "\ufffd" + `\r\n\u0000"}` + "\r",
			"1 key written", "\ufffd \\ud800 \U0001f600\ufffd\r\n\x00"},
		{`{"key":"a","value":{"base64":"/w=="}}`, "1 key written", "\xff"},
	} {
		b.click("Import…")
		b.until(`document.querySelector("dialog input[type=file]")`)
		line, _ := json.Marshal([]byte(x.line + "\n"))
		eval[any](b, `void ((f) => { const d = new DataTransfer(); d.items.add(new File([Uint8Array.from(atob(`+string(line)+`), (c) => c.charCodeAt(0))], "keys.jsonl")); f.files = d.files; f.dispatchEvent(new Event("change", {bubbles: true})); })(document.querySelector("dialog input[type=file]")), 0`)
		eval[any](b, `document.querySelector("dialog input[type=checkbox]").click(), 0`)
		b.click("Import")
		b.shows(x.shows)
		res, err := c.Get(t.Context(), "", clientv3.WithPrefix())
		if err != nil || x.value == "" && len(res.Kvs) != 0 ||
			x.value != "" && (len(res.Kvs) != 1 || string(res.Kvs[0].Value) != x.value) {
			t.Fatalf("%q: %v, %v", x.line, res, err)
		}
		b.click("Close")
	}
	b.check()
}
