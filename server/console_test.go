package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// page is a page of the console in a browser.
type page struct {
	t      *testing.T
	url    string
	client *http.Client
	cookie string
}

func newPage(t *testing.T, addr string) *page {
	t.Helper()
	return &page{t: t, url: "http://" + addr,
		client: &http.Client{CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		}}}
}

// answer is the response to a request of a page.
type answer struct {
	code   int
	header http.Header
	body   string
}

// field returns a field of an object in JSON.
func (a answer) field(name string) any {
	var all map[string]any
	_ = json.Unmarshal([]byte(a.body), &all)
	return all[name]
}

// send sends a request with headers NAME: VALUE, after those of the console; a header without a
// value is removed.
func (p *page) send(method, path, body string, headers ...string) answer {
	p.t.Helper()
	r, err := http.NewRequestWithContext(timeout(p.t), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("X-Vigil-Console", "1")
	if p.cookie != "" {
		r.Header.Set("Cookie", p.cookie)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		switch {
		case name == "Host":
			r.Host = value
		case value == "":
			r.Header.Del(name)
		default:
			r.Header.Set(name, value)
		}
	}
	res, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range res.Cookies() {
		if c.MaxAge < 0 {
			p.cookie = ""
		} else {
			p.cookie = c.Name + "=" + c.Value
		}
	}
	return answer{res.StatusCode, res.Header, string(b)}
}

// get calls the API. Parameters are NAME=TEXT; those of keys are encoded.
func (p *page) get(path string, params ...string) answer {
	p.t.Helper()
	q := url.Values{}
	for _, s := range params {
		name, value, _ := strings.Cut(s, "=")
		if slices.Contains([]string{"key", "end", "prefix", "after"}, name) && path != "leases" &&
			!strings.HasPrefix(value, "raw:") {
			value = b64(value)
		}
		q.Set(name, strings.TrimPrefix(value, "raw:"))
	}
	return p.send("GET", "/console/api/"+path+"?"+q.Encode(), "")
}

func (p *page) post(path string, body any) answer {
	p.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.send("POST", "/console/api/"+path, string(b))
}

// want checks the status of an answer, and that its body has texts.
func (p *page) want(what string, a answer, code int, texts ...string) answer {
	p.t.Helper()
	if a.code != code {
		p.t.Errorf("%s: %d %.300s, want %d", what, a.code, a.body, code)
		return a
	}
	for _, text := range texts {
		if !strings.Contains(a.body, text) {
			p.t.Errorf("%s: %.600s, want %q", what, a.body, text)
		}
	}
	return a
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

type object = map[string]any

func TestConsoleRejectsForeignRequests(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true, CORS: []string{"*", "http://friend"}})
	p := newPage(t, addr)
	put := fmt.Sprintf(`{"key":%q,"value":"","mod":0}`, b64("k"))
	for _, c := range []struct {
		name, method, path, body string
		headers                  []string
		code                     int
		text                     string
	}{
		{"the page", "GET", "/console/", "", nil, 200, "<title>Vigil</title>"},
		{"the page by name", "GET", "/console/", "", []string{"Host: localhost:1"}, 200, ""},
		{"the page by address", "GET", "/console/", "", []string{"Host: [::1]:1"}, 200, ""},
		{"a name of somebody else", "GET", "/console/", "", []string{"Host: rebound.example"}, 421,
			"DNS rebinding"},
		{"an API call by a name of somebody else", "GET", "/console/api/session", "",
			[]string{"Host: rebound.example"}, 421, ""},
		{"a name that begins like a known one", "GET", "/console/", "",
			[]string{"Host: localhost.example"}, 421, ""},
		{"a call", "GET", "/console/api/session", "", nil, 200, "cluster"},
		{"a call without the header", "GET", "/console/api/session", "",
			[]string{"X-Vigil-Console"}, 403, "header"},
		{"a write without the header", "POST", "/console/api/put", put, []string{"X-Vigil-Console"},
			403, "header"},
		{"a write from another origin", "POST", "/console/api/put", put,
			[]string{"Origin: http://evil.example"}, 403, "origin"},
		{"a write from a friend of --cors", "POST", "/console/api/put", put,
			[]string{"Origin: http://friend"}, 403, "origin"},
		{"a write from another port", "POST", "/console/api/put", put,
			[]string{"Origin: http://127.0.0.1:1"}, 403, "origin"},
		{"a write from no origin", "POST", "/console/api/put", put, []string{"Origin: null"},
			403, "origin"},
		{"a write from another site", "POST", "/console/api/put", put,
			[]string{"Sec-Fetch-Site: cross-site"}, 403, "site"},
		{"a write from the same site", "POST", "/console/api/put", put,
			[]string{"Sec-Fetch-Site: same-site"}, 403, "site"},
		{"a login from another origin", "POST", "/console/api/login", "{}",
			[]string{"Origin: http://evil.example"}, 403, "origin"},
		{"a write with GET", "GET", "/console/api/put", "", nil, 404, "no such path"},
		{"a read with POST", "POST", "/console/api/tree", "", nil, 404, "no such path"},
		{"a write to the page", "POST", "/console/", "", nil, 405, ""},
		{"an unknown file", "GET", "/console/nothing.js", "", nil, 404, ""},
		{"a file outside", "GET", "/console/..%2f..%2fetc/passwd", "", nil, 404, ""},
		{"a write with an unknown field", "POST", "/console/api/put",
			`{"key":"aw==","mod":0,"force":true}`, nil, 400, "unknown field"},
		{"a write without a revision", "POST", "/console/api/put", `{"key":"aw=="}`,
			nil, 400, "mod"},
		{"two values", "POST", "/console/api/put", put + put, nil, 400, "more than one"},
		{"a body without an end", "POST", "/console/api/put",
			`{"key":"` + strings.Repeat("a", 4<<20) + `"}`, nil, 413, "more than"},
		{"a key that is not base64", "GET", "/console/api/key?key=%ff", "", nil, 400, "base64"},
		{"a key that is too long", "GET", "/console/api/key?key=" + strings.Repeat("AAAA", 30_000),
			"", nil, 400, "at most"},
		{"a revision that is no number", "GET", "/console/api/tree?rev=x", "", nil, 400,
			"want a number"},
		{"a negative revision", "GET", "/console/api/tree?rev=-1", "", nil, 400, "want a number"},
		{"a revision in the future", "GET", "/console/api/tree?rev=1000", "", nil, 400,
			"future revision"},
		{"a pattern without an end", "GET", "/console/api/search?pattern=[", "", nil,
			400, "pattern"},
		{"a large pattern", "GET", "/console/api/search?pattern=" + strings.Repeat("*", 2000), "",
			nil, 400, "at most"},
		{"a lease that is no number", "POST", "/console/api/revoke", `{"id":"xyz"}`, nil, 400,
			"hexadecimal"},
		{"an unknown change", "POST", "/console/api/member", `{"do":"explode"}`, nil,
			400, "no action"},
		{"an unknown change of users", "POST", "/console/api/access", `{"do":"explode"}`, nil,
			400, "no change"},
	} {
		a := p.want(c.name, p.send(c.method, c.path, c.body, c.headers...), c.code, c.text)
		for name, value := range map[string]string{"X-Frame-Options": "DENY",
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin"} {
			if a.header.Get(name) != value {
				t.Errorf("%s: header %s is %q, want %q", c.name, name, a.header.Get(name), value)
			}
		}
		policy := a.header.Get("Content-Security-Policy")
		if !strings.Contains(policy, "frame-ancestors 'none'") ||
			!strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", c.name, policy)
		}
		if a.header.Get("Content-Type") == "application/json" && a.code >= 400 &&
			a.field("next") == nil {
			t.Errorf("%s: the error does not say what to do: %s", c.name, a.body)
		}
		for name := range a.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: header %s: pages of other origins may read the answer", c.name, name)
			}
		}
		if strings.HasPrefix(c.path, "/console/api/") && c.code != 421 &&
			a.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: may be stored: %q", c.name, a.header.Get("Cache-Control"))
		}
	}
	a := p.send("OPTIONS", "/console/api/put", "", "Origin: http://evil.example",
		"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: x-vigil-console")
	if strings.Contains(strings.ToLower(a.header.Get("Access-Control-Allow-Headers")), "x-vigil") {
		t.Error("another origin may send the header of the console")
	}
	p.want("the key was not written", p.get("key", "key=k"), 200, `"revision":1`)
}

func TestConsoleOff(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true, Console: "off"})
	newPage(t, addr).want("off", newPage(t, addr).send("GET", "/console/", ""), 404)
}

func TestConsoleKeys(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true})
	p := newPage(t, addr)
	cc := pb.NewKVClient(dial(t, addr))
	put := func(key, value string) int64 {
		t.Helper()
		res, err := cc.Put(timeout(t), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		return res.Header.Revision
	}
	for i := range 250 {
		put(fmt.Sprintf("many/%03d/x", i), "v")
		put(fmt.Sprintf("flat%03d", i), "v")
	}
	put("\xff\xff", "end") // a group without an end
	put("\xff\xff/a", "end")
	put("a/<b>\u202e\x00", "x")

	// The tree: all levels together have every key once, in pages of one revision.
	var groups, leaves int
	after, rev := "", ""
	for pages := 0; ; pages++ {
		if pages > 10 {
			t.Fatal("the tree has no end")
		}
		params := []string{"separator=/"}
		if after != "" {
			params = append(params, "after=raw:"+after, "rev="+rev)
			put("zz new", "later") // not in the pages of this list
		}
		a := p.want("tree", p.get("tree", params...), 200)
		var got struct {
			Revision int64
			After    string
			Entries  []struct {
				Key, Prefix string
				Count       int
			}
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Fatal(err)
		}
		if len(got.Entries) > 200 {
			t.Fatalf("a page of %d entries", len(got.Entries))
		}
		for _, e := range got.Entries {
			if e.Prefix != "" {
				groups += e.Count
			} else {
				leaves++
			}
		}
		if after, rev = got.After, fmt.Sprint(got.Revision); after == "" {
			break
		}
	}
	if groups != 252 || leaves != 251 {
		t.Errorf("the tree has %d keys in groups and %d others, want 252 and 251", groups, leaves)
	}

	p.want("search by pattern", p.get("search", "pattern=many/01?/*"), 200, `"visited":504`,
		b64("many/017/x"))
	p.want("search by part", p.get("search", "pattern=/24"), 200, b64("many/249/x"))
	p.want("search by **", p.get("search", "pattern=many/**9/x"), 200, b64("many/249/x"))
	p.want("search by range", p.get("search", "key=flat1", "end=flat2"), 200, `"total":100`)
	p.want("search in another order", p.get("search", "key=many/", "sort=mod", "descend=1"), 200,
		`"sorted":true`, `"entries":[{"key":"`+b64("many/249/x"))
	p.want("search with values", p.get("search", "key=many/000", "values=1"), 200,
		`"size":1,"text":"v"`)
	p.want("search in an unknown order", p.get("search", "key=many/", "sort=color"), 400,
		"want key, mod")
	if a := p.get("search", "key=many/"); a.field("after") == nil ||
		len(a.field("entries").([]any)) != 200 {
		t.Errorf("a search is not divided: %.200s", a.body)
	}
	p.want("a key with odd characters", p.get("key", "key=a/<b>\u202e\x00"), 200,
		b64("a/<b>\u202e\x00"))
	if strings.Contains(p.get("tree", "prefix=a/").body, "<b>") {
		t.Error("a key is sent as it is")
	}

	// A large value is cut, and returned as a whole on request.
	put("large", strings.Repeat("x", 1<<20))
	if a := p.want("a large value", p.get("key", "key=large"), 200, `"cut":true`,
		`"size":1048576`); len(a.body) > 1<<20 {
		t.Errorf("an answer of %d bytes", len(a.body))
	}
	if a := p.get("key", "key=large", "whole=1"); a.field("cut") != nil || len(a.body) < 1<<20 {
		t.Errorf("the whole value: %d bytes", len(a.body))
	}

	// Lists of large keys are divided by their size.
	for i := range 3 {
		put(fmt.Sprintf("huge/%d", i)+strings.Repeat("k", 900<<10), "")
	}
	for _, path := range []string{"tree", "search"} {
		if a := p.get(path, "prefix=huge/", "key=huge/", "separator="); len(a.body) > 5<<20 ||
			a.field("after") == nil || len(a.field("entries").([]any)) != 2 {
			t.Errorf("%s of large keys: %d bytes, %.100s", path, len(a.body), a.body)
		}
	}
	if a := p.get("changes", "prefix=huge/"); len(a.body) > 5<<20 || a.field("before") == nil {
		t.Errorf("changes of large keys: %d bytes", len(a.body))
	}

	// The changes of the store, the newest first, in parts: each revision once, although most parts
	// of the history have none of the prefix.
	for _, x := range []struct {
		prefix      string
		first, last float64
	}{{"", 2, p.get("count", "key=a").field("revision").(float64)}, {"a/", 0, 0}} {
		parts, total, next := 0, 0, x.last+1
		for to := ""; ; parts++ {
			a := p.get("changes", "prefix="+x.prefix, to)
			for _, c := range a.field("changes").([]any) {
				mod := c.(object)["mod"].(float64)
				if x.last > 0 && mod != next-1 || x.last == 0 && parts+total > 0 && mod >= next {
					t.Fatalf("changes of %q: revision %v before %v", x.prefix, mod, next)
				}
				next = mod
				total++
			}
			if a.field("before") == nil {
				break
			}
			to = fmt.Sprintf("to=%.0f", a.field("before"))
		}
		if next != x.first && x.last > 0 || total == 0 {
			t.Errorf("changes of %q: %d, the last part ends at revision %v", x.prefix, total, next)
		}
		t.Logf("%d changes of %q in %d parts", total, x.prefix, parts+1)
	}

	// A change is made only to what was read.
	p.want("a new key", p.post("put", object{"key": b64("cas"), "value": b64("1"), "mod": 0}), 200)
	p.want("a new key that exists",
		p.post("put", object{"key": b64("cas"), "value": b64("2"), "mod": 0}), 409,
		"changed by somebody else", `"value":"`+b64("1"))
	read := p.get("key", "key=cas").field("key").(object)["mod"]
	now := put("cas", "theirs")
	p.want("a changed key",
		p.post("put", object{"key": b64("cas"), "value": b64("mine"), "mod": read}),
		409, b64("theirs"))
	p.want("deletion of a changed key", p.post("delete", object{"key": b64("cas"), "mod": read}),
		409, b64("theirs"))
	p.want("the key", p.get("key", "key=cas"), 200, b64("theirs"))
	p.want("deletion", p.post("delete", object{"key": b64("cas"), "mod": now}), 200)
	p.want("a deleted key", p.post("put", object{"key": b64("cas"), "value": b64("x"), "mod": now}),
		409, "does not exist")

	// A range is deleted only if none of its keys was written since it was counted.
	count := p.get("count", "key=many/", "prefix=many/")
	if count.field("count") != 250.0 {
		t.Errorf("count: %s", count.body)
	}
	put("many/000/x", "new")
	p.want("deletion of a changed range",
		p.post("delete", object{"key": b64("many/"), "prefix": true,
			"since": count.field("revision")}), 409, "nothing was deleted")
	count = p.get("count", "key=many/", "prefix=many/")
	p.want("deletion of a range",
		p.post("delete", object{"key": b64("many/"), "prefix": true,
			"since": count.field("revision")}), 200, `"deleted":250`)
	p.want("deletion without a count",
		p.post("delete", object{"key": "", "prefix": true}), 400, "since")

	p.want("nothing of that was too much", p.get("session"), 200,
		fmt.Sprintf("%x", m.replica.Header().MemberID))
}

// TestConsoleTimes: each change has the time at which it was made, and a time has its revision.
func TestConsoleTimes(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	p := newPage(t, addr)
	cc := pb.NewKVClient(dial(t, addr))
	start := time.Now()
	res, err := cc.Put(timeout(t), &pb.PutRequest{Key: []byte("k"), Value: []byte("v")})
	if err != nil {
		t.Fatal(err)
	}
	type span struct{ From, To int64 }
	var got struct{ Versions []span }
	// the leader records the time soon
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a := p.want("history", p.get("history", "key=k"), 200)
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || len(got.Versions) != 1 {
			t.Fatal(a.body, err)
		}
		if got.Versions[0].To > 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no time is known")
		}
	}
	v := got.Versions[0]
	if v.To < start.UnixMilli() || v.To > time.Now().UnixMilli() || v.From > v.To {
		t.Errorf("made from %d to %d, after %d", v.From, v.To, start.UnixMilli())
	}
	at := fmt.Sprintf("at=%d", v.To)
	p.want("the revision of the time", p.get("revision", at), 200,
		fmt.Sprintf(`{"revision":%d}`, res.Header.Revision))
	for _, path := range []string{"changes", "key"} {
		p.want(path, p.get(path, "key=k", fmt.Sprintf("from=%d", res.Header.Revision)), 200,
			fmt.Sprintf(`"to":%d`, v.To))
	}
	p.want("a time before all", p.get("revision", "at=1"), 400, "the first known time is")
	p.want("a time to come",
		p.get("revision", fmt.Sprintf("at=%d", time.Now().Add(time.Hour).UnixMilli())), 400,
		"future revision")
	p.want("no time", p.get("revision", "at=x"), 400, "want a number")
	if _, err := cc.Compact(timeout(t),
		&pb.CompactionRequest{Revision: res.Header.Revision}); err != nil {
		t.Fatal(err)
	}
	p.want("the compacted state of a key", p.get("history", "key=k"), 200,
		fmt.Sprintf(`"to":%d`, v.To))
	if _, err := cc.DeleteRange(timeout(t), &pb.DeleteRangeRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	p.want("the state that a compaction has kept", p.get("history", "key=k"), 200, `"deleted":true`,
		fmt.Sprintf(`"to":%d`, v.To))
}

// TestConsoleCompares: one member is compared with none, and its hash is not read.
func TestConsoleCompares(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	next, _ := newPage(t, addr).stream("compare")
	if l := next(); !strings.Contains(l, `"members":[{"id":`) {
		t.Error(l)
	}
	if l := next(); l != `{"result":{"findings":[],"not_checked":[]}}` {
		t.Error(l)
	}
}

func TestConsoleHistory(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	p := newPage(t, addr)
	cc := pb.NewKVClient(dial(t, addr))
	var revs []int64
	put := func(value string) {
		t.Helper()
		res, err := cc.Put(timeout(t), &pb.PutRequest{Key: []byte("k"), Value: []byte(value)})
		if err != nil {
			t.Fatal(err)
		}
		revs = append(revs, res.Header.Revision)
	}
	remove := func() {
		t.Helper()
		res, err := cc.DeleteRange(timeout(t), &pb.DeleteRangeRequest{Key: []byte("k")})
		if err != nil {
			t.Fatal(err)
		}
		revs = append(revs, res.Header.Revision)
	}
	for i := range 60 {
		put(fmt.Sprintf(`{"n":%d}`, i))
	}
	remove()
	put("a\nb\nc\n")
	put("a\nB\nc\n")
	if _, err := cc.Put(timeout(t), &pb.PutRequest{Key: []byte("other")}); err != nil {
		t.Fatal(err)
	}
	// A key that does not exist now: all its changes are read from the history of the store.
	checkHistory(t, p, revs, 60)
	remove()
	checkHistory(t, p, revs, 60, len(revs)-1)
	p.want("difference",
		p.get("diff", "key=k", fmt.Sprintf("a=%d", revs[61]),
			fmt.Sprintf("b=%d", revs[62])), 200, `-b\n+B`)
	p.want("difference of the deletion",
		p.get("diff", "key=k", fmt.Sprintf("a=%d", revs[59]), fmt.Sprintf("b=%d", revs[60])), 200,
		"no such key", `-  \"n\": 59`)
	p.want("changes", p.get("changes", fmt.Sprintf("from=%d", revs[60]),
		fmt.Sprintf("to=%d", revs[61])), 200, `"deleted":true`)
	p.want("changes without an order", p.get("changes", "from=9", "to=3"), 400, "must not be after")
	p.want("changes of the future", p.get("changes", "from=9", "to=3000"), 400, "the store is at")

	if _, err := cc.Compact(timeout(t), &pb.CompactionRequest{Revision: revs[61]}); err != nil {
		t.Fatal(err)
	}
	p.want("a compacted revision", p.get("key", "key=k", fmt.Sprintf("rev=%d", revs[3])), 410,
		"compacted", "choose a newer revision")
	p.want("the tree at a compacted revision", p.get("tree", fmt.Sprintf("rev=%d", revs[3])),
		410, "compacted")
	p.want("history after a compaction", p.get("history", "key=k"), 200,
		fmt.Sprintf(`"mod":%d`, revs[61]))
	p.want("changes after a compaction", p.get("changes", "from=1"), 200,
		fmt.Sprintf(`"compact":%d`, revs[61]), fmt.Sprintf(`"mod":%d`, revs[62]))
	p.want("history of no key", p.get("history", "key=nothing"), 200, `"versions":[]`)
}

// checkHistory checks the history of the key k, which is in pages: the revisions, and which of them
// are deletions.
func checkHistory(t *testing.T, p *page, revs []int64, deleted ...int) {
	t.Helper()
	var got []int64
	before := ""
	for pages := 0; pages < 10; pages++ {
		params := []string{"key=k"}
		if before != "" {
			params = append(params, "before="+before)
		}
		a := p.want("history", p.get("history", params...), 200)
		var h struct {
			Versions []struct {
				Mod     int64
				Deleted bool
			}
			Before int64
		}
		if err := json.Unmarshal([]byte(a.body), &h); err != nil {
			t.Fatal(err)
		}
		if len(h.Versions) > 50 {
			t.Fatalf("a page of %d revisions", len(h.Versions))
		}
		for _, v := range h.Versions {
			if v.Deleted != slices.ContainsFunc(deleted,
				func(i int) bool { return revs[i] == v.Mod }) {
				t.Errorf("revision %d: deleted is %v", v.Mod, v.Deleted)
			}
			got = append(got, v.Mod)
		}
		if h.Before == 0 {
			break
		}
		before = fmt.Sprint(h.Before)
	}
	slices.Reverse(got)
	if !slices.Equal(got, revs) {
		t.Errorf("history %v, want %v", got, revs)
	}
}

func TestConsoleImportAndExport(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	p := newPage(t, addr)
	lines := `{"vigil_dump":1,"keys":2}` + "\n" + `{"key":"in/a","value":"1","lease":"77"}` +
		"\n\n" + `{"key":{"base64":"aW4v/w=="},"value":{"base64":"AP8="}}` + "\n"
	p.want("import", p.post("import", object{"lines": lines}), 200, `"written":2`, `"ignored":1`)
	p.want("import again", p.post("import", object{"lines": lines}), 200, `"written":0`,
		`"existing":2`)
	p.want("import with replacement", p.post("import", object{"lines": lines, "replace": true}),
		200, `"written":2`)
	p.want("a wrong line", p.post("import", object{"lines": `{"key":"in/b","value":"1"}` + "\n{"}),
		400, "line 2", `"imported":{"written":1,`)
	p.want("a key of another type",
		p.post("import", object{"lines": `{"key":7,"value":"1"}`}), 400, "line 1")
	out := p.want("export", p.get("export", "prefix=in/"), 200,
		`{"key":"in/a","value":"1","create_revision":2`,
		`{"key":{"base64":"aW4v/w=="},"value":{"base64":"AP8="}`)
	if n := strings.Count(out.body, "\n"); n != 3 {
		t.Errorf("an export of %d lines: %s", n, out.body)
	}
}

func TestConsoleUsers(t *testing.T) {
	v := newVault(t, Config{UnsafeNoSync: true})
	v.put("a1")
	v.put("secret")
	p := newPage(t, v.addr)
	p.want("a session without a login", p.get("session"), 200, `"auth":true`, `"user":""`)
	for _, path := range []string{"tree", "key", "search", "history", "changes", "live", "tail",
		"access", "leases", "export", "snapshot"} {
		if a := p.get(path, "key=a1"); a.code != 401 && a.code != 403 {
			t.Errorf("%s without a login: %d %.200s", path, a.code, a.body)
		}
	}
	p.want("watchers without a login", p.get("watchers"), 403)
	p.want("a comparison without a login", p.get("compare"), 403)
	p.want("a revision without a login", p.get("revision", "at=1"), 401)
	p.want("a wrong password", p.post("login", object{"name": "alice", "password": "x"}), 401,
		"check the name")
	p.want("an unknown user", p.post("login", object{"name": "<b>", "password": "x"}), 401)

	login := func(name string) {
		t.Helper()
		a := p.want("login", p.post("login", object{"name": name, "password": name}), 200)
		set := a.header.Get("Set-Cookie")
		for _, want := range []string{"HttpOnly", "SameSite=Strict", "Path=/console/"} {
			if !strings.Contains(set, want) {
				t.Errorf("the cookie %q is not %s", set, want)
			}
		}
	}
	login("alice")
	p.want("the session of alice", p.get("session"), 200, `"user":"alice"`,
		`"root":false`, b64("a"))
	p.want("a key of alice", p.get("key", "key=a1"), 200, b64("a1"))
	p.want("her range", p.get("tree", "prefix=a"), 200, b64("a1"))
	for name, a := range map[string]answer{
		"a key of others": p.get("key", "key=secret"), "all keys": p.get("tree"),
		"a search": p.get("search"), "its history": p.get("history", "key=secret"),
		"all changes": p.get("changes"), "a difference": p.get("diff", "key=secret", "a=1", "b=2"),
		"a tail": p.get("tail", "prefix=secret"), "an export": p.get("export"),
		"the users": p.get("access"), "the watchers": p.get("watchers"),
		"a snapshot": p.get("snapshot"), "a comparison": p.get("compare"),
		"a count": p.get("count"), "a count of others": p.get("count", "key=s", "prefix=s"),
		"a range beyond hers":                p.get("search", "key=a", "end=c"),
		"a search with values":               p.get("search", "key=s", "values=1"),
		"a pattern":                          p.get("search", "pattern=*"),
		"a prefix that is shorter than hers": p.get("tree", "prefix="),
		"changes of others":                  p.get("changes", "prefix=s"),
		"a key at an older revision":         p.get("key", "key=secret", "rev=2"),
		"a write": p.post("put",
			object{"key": b64("secret"), "value": "", "mod": 0}),
		"a deletion": p.post("delete",
			object{"key": "", "prefix": true, "since": 100}),
		"an import": p.post("import",
			object{"lines": `{"key":"secret","value":""}`}),
		"a removal":    p.post("member", object{"do": "remove", "id": "1"}),
		"a compaction": p.post("member", object{"do": "compact", "revision": 1}),
		"a change of root": p.post("access",
			object{"do": "user-grant", "user": "alice", "role": "root"}),
	} {
		p.want("alice and "+name, a, 403)
	}
	// Leases and locks are listed only to who may read all their keys, as by the API.
	admin := v.as("root")
	for i, id := range []int64{0x78, 0x77} {
		key := []string{"alock/78", "secret-lock/77"}[i]
		if _, err := pb.NewLeaseClient(v.cc).LeaseGrant(admin,
			&pb.LeaseGrantRequest{ID: id, TTL: 1000}); err != nil {
			t.Fatal(err)
		}
		if _, err := pb.NewKVClient(v.cc).Put(admin,
			&pb.PutRequest{Key: []byte(key), Value: []byte("mine"), Lease: id}); err != nil {
			t.Fatal(err)
		}
		code := []int{200, 403}[i]
		p.want("leases", p.get("leases"), code)
		if a := p.want("locks", p.get("locks"), code); i == 0 &&
			!strings.Contains(a.body, b64("alock")) {
			t.Errorf("her lock: %s", a.body)
		}
	}
	live, stop := p.stream("live")
	for name, body := range map[string]string{"leases": p.get("leases").body,
		"locks": p.get("locks").body, "the overview": live(),
		"the session": p.get("session").body} {
		for _, hidden := range []string{"secret", b64("secret"), b64("secret-lock/77"),
			b64("secret-lock"), b64("mine")} {
			if strings.Contains(body, hidden) {
				t.Errorf("%s shows alice %q: %s", name, hidden, body)
			}
		}
	}
	stop()
	alice := p.cookie
	login("root")
	p.want("the watchers as root", p.get("watchers"), 200, "watchers")
	p.want("the users as root", p.get("access"), 200, `"name":"alice"`)
	p.want("logout", p.post("logout", object{}), 200)
	p.want("after the logout", p.get("key", "key=a1"), 401)

	// The name in a cookie is a claim: it gives nothing.
	b, _ := base64.RawURLEncoding.DecodeString(alice[strings.Index(alice, "=")+1:])
	forged := bytes.Replace(b, []byte(`"alice"`), []byte(`"root"`), 1)
	p.cookie = alice[:strings.Index(alice, "=")+1] + base64.RawURLEncoding.EncodeToString(forged)
	if a := p.get("session"); a.field("user") == "root" || a.field("root") == true {
		t.Errorf("a forged name: %s", a.body)
	}
	p.want("a forged name", p.get("key", "key=secret"), 403)

	p.cookie = alice[:strings.Index(alice, "=")+1] + "!!"
	p.want("a cookie of nonsense", p.get("session"), 200, `"user":""`)
}

// TestConsoleStreamsEndWithTheirUser: an overview and a tail that are open end when their user may
// not see them any more.
func TestConsoleStreamsEndWithTheirUser(t *testing.T) {
	v := newVault(t, Config{UnsafeNoSync: true})
	for name, change := range map[string]func(pb.AuthClient, context.Context) error{
		"another password": func(c pb.AuthClient, ctx context.Context) error {
			_, err := c.UserChangePassword(ctx,
				&pb.AuthUserChangePasswordRequest{Name: "alice", Password: "new"})
			return err
		},
		"no role": func(c pb.AuthClient, ctx context.Context) error {
			_, err := c.UserRevokeRole(ctx, &pb.AuthUserRevokeRoleRequest{Name: "bob", Role: "r"})
			return err
		},
		"no user": func(c pb.AuthClient, ctx context.Context) error {
			_, err := c.UserDelete(ctx, &pb.AuthUserDeleteRequest{Name: "carol"})
			return err
		},
	} {
		admin := v.as("root")
		user := map[string]string{"another password": "alice", "no role": "bob",
			"no user": "carol"}[name]
		if user != "alice" {
			if _, err := pb.NewAuthClient(v.cc).UserAdd(admin,
				&pb.AuthUserAddRequest{Name: user, Password: user}); err != nil {
				t.Fatal(err)
			}
			if _, err := pb.NewAuthClient(v.cc).UserGrantRole(admin,
				&pb.AuthUserGrantRoleRequest{User: user, Role: "r"}); err != nil {
				t.Fatal(err)
			}
		}
		p := newPage(t, v.addr)
		p.want("login", p.post("login", object{"name": user, "password": user}), 200)
		tail, _ := p.stream("tail?prefix=" + url.QueryEscape(b64("a")))
		live, stop := p.stream("live")
		tail()
		live()
		if err := change(pb.NewAuthClient(v.cc), admin); err != nil {
			t.Fatal(err)
		}
		// Each stream has an end, and after the change the tail has no event.
		put := v.as("root")
		if _, err := pb.NewKVClient(v.cc).Put(put,
			&pb.PutRequest{Key: []byte("a2"), Value: []byte("after")}); err != nil {
			t.Fatal(err)
		}
		if l := tail(); name != "another password" && !strings.Contains(l, `"end":`) ||
			strings.Contains(l, b64("a2")) {
			t.Errorf("%s: the tail goes on: %s", name, l)
		}
		if user == "bob" { // still a user
			stop()
			continue
		}
		ended := ""
		for range 5 {
			if ended = live(); strings.HasPrefix(ended, `{"end":`) {
				break
			}
		}
		if !strings.Contains(ended, `"code":"login"`) &&
			!strings.Contains(ended, `"code":"request"`) {
			t.Errorf("%s: the overview goes on: %.200s", name, ended)
		}
	}
}

// TestConsoleExpiredToken: a token that was not used for a while is not valid any more, and the
// page learns to ask for a login.
func TestConsoleExpiredToken(t *testing.T) {
	v := newVault(t, Config{UnsafeNoSync: true, Auth: Auth{TokenTTL: time.Second}})
	p := newPage(t, v.addr)
	p.want("login", p.post("login", object{"name": "alice", "password": "alice"}), 200)
	for end := time.Now().Add(time.Minute); ; {
		time.Sleep(1500 * time.Millisecond) // each use makes a token valid for longer
		a := p.get("key", "key=a1")
		if a.code == 401 {
			p.want("an expired token", a, 401, `"code":"login"`, "log in again")
			break
		}
		if time.Now().After(end) {
			t.Fatal("the token does not expire")
		}
	}
	p.want("the session after that", p.get("session"), 200, `"user":""`, `"expired":true`)
}

// stream opens a stream of lines.
func (p *page) stream(path string) (next func() string, stop func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, _ := http.NewRequestWithContext(ctx, "GET", p.url+"/console/api/"+path, nil)
	r.Header.Set("X-Vigil-Console", "1")
	if p.cookie != "" {
		r.Header.Set("Cookie", p.cookie)
	}
	res, err := p.client.Do(r)
	if err != nil || res.StatusCode != 200 {
		cancel()
		p.t.Fatal(res, err)
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 4<<20)
	p.t.Cleanup(func() { cancel(); res.Body.Close() })
	return func() string {
		if !lines.Scan() {
			return fmt.Sprint("end: ", lines.Err())
		}
		return lines.Text()
	}, cancel
}

func TestConsoleStreams(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true})
	p := newPage(t, addr)
	cc := pb.NewKVClient(dial(t, addr))
	live, _ := p.stream("live")
	var first, second struct {
		First   bool
		Members []struct {
			Name, Role string
			Self       bool
			Points     []object
		}
	}
	if err := json.Unmarshal([]byte(live()), &first); err != nil || !first.First ||
		len(first.Members) != 1 || first.Members[0].Role != "leader" || !first.Members[0].Self {
		t.Fatalf("%+v, %v", first, err)
	}
	tail, _ := p.stream("tail?prefix=" + url.QueryEscape(b64("t/")))
	if l := tail(); !strings.Contains(l, `"created":true`) {
		t.Fatal(l)
	}
	for _, key := range []string{"other", "t/\xff"} {
		if _, err := cc.Put(timeout(t),
			&pb.PutRequest{Key: []byte(key), Value: []byte("v")}); err != nil {
			t.Fatal(err)
		}
	}
	if l := tail(); !strings.Contains(l, b64("t/\xff")) || strings.Contains(l, b64("other")) {
		t.Fatal(l)
	}
	p.want("the tail as a watcher", p.get("watchers", "filter=console"), 200, `"matching":1`,
		`"client":"console 127.0.0.1:`)
	if err := json.Unmarshal([]byte(live()), &second); err != nil || second.First ||
		len(second.Members[0].Points) > 1 || second.Members[0].Points[0]["rates"] == nil {
		t.Fatalf("%+v, %v", second, err)
	}

	// The number of streams is bounded. The streams that are open end when the member stops.
	var stops []func()
	for {
		r, _ := http.NewRequest("GET", p.url+"/console/api/tail", nil)
		r.Header.Set("X-Vigil-Console", "1")
		res, err := p.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, func() { res.Body.Close() })
		if res.StatusCode == http.StatusServiceUnavailable {
			break
		}
		if len(stops) > 200 {
			t.Fatal("the number of streams is not bounded")
		}
	}
	for _, stop := range stops[:len(stops)-1] {
		stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Close(ctx); err != nil || ctx.Err() != nil {
		t.Fatal(err, ctx.Err())
	}
	for l := live(); !strings.HasPrefix(l, "end"); l = live() {
	}
}

// TestConsoleCostsNothing: a console without a reader has no goroutine; with one it has, so that
// this test would see them.
func TestConsoleCostsNothing(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	p := newPage(t, addr)
	p.want("a page", p.send("GET", "/console/", ""), 200)
	p.want("a call", p.get("session"), 200)
	running := func() bool {
		stacks := make([]byte, 16<<20)
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)],
			[]byte("vigil/internal/edge/console."))
	}
	// the server may still be ending the requests
	for end := time.Now().Add(time.Minute); running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a goroutine of the console runs without a reader")
		}
	}
	for _, path := range []string{"history", "changes", "export", "locks"} {
		p.want(path, p.get(path, "key=k"), 200)
	}
	tail, stop := p.stream("tail?prefix=" + url.QueryEscape(b64("t/")))
	tail()
	if !running() {
		t.Fatal("this test cannot see the goroutines of the console")
	}
	stop()
	for end := time.Now().Add(time.Minute); running(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a goroutine of the console runs after its reader has left")
		}
	}
}

func TestConsoleLocks(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	p := newPage(t, addr)
	cc := dial(t, addr)
	for _, id := range []int64{0x77, 0x78} {
		if _, err := pb.NewLeaseClient(cc).LeaseGrant(timeout(t),
			&pb.LeaseGrantRequest{ID: id, TTL: 100}); err != nil {
			t.Fatal(err)
		}
		if _, err := pb.NewKVClient(cc).Put(timeout(t),
			&pb.PutRequest{Key: fmt.Appendf(nil, "job/%x", id), Value: []byte("me"),
				Lease: id}); err != nil {
			t.Fatal(err)
		}
	}
	p.want("leases", p.get("leases"), 200, `"total":2`, b64("job/77"))
	p.want("locks", p.get("locks"), 200, `"name":"`+b64("job"), `"holder":{"key":"`+b64("job/77"),
		`"waiting":[{"key":"`+b64("job/78"))
	p.want("revocation", p.post("revoke", object{"id": "77"}), 200)
	p.want("the next holder", p.get("locks"), 200, `"holder":{"key":"`+b64("job/78"))
	p.want("leases from one on", p.get("leases", "after=79"), 200, `"leases":[]`)
}

func TestConsoleActions(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	p := newPage(t, addr)
	p.want("compaction of the future",
		p.post("member", object{"do": "compact", "revision": 99}), 400, "future")
	p.want("compaction of nothing", p.post("member", object{"do": "compact", "revision": 0}), 400)
	p.want("defragmentation", p.post("member", object{"do": "defragment"}), 200)
	p.want("removal of the only member", p.post("member", object{"do": "remove", "id": "123"}),
		400, "not found")
	p.want("an unknown alarm",
		p.post("member", object{"do": "disarm", "id": "0", "alarm": "NONE"}), 400)
	p.want("a wrong address",
		p.post("member", object{"do": "add", "urls": []string{"::"}, "learner": true}), 400)
	if a := p.want("a snapshot", p.get("snapshot"), 200); len(a.body) < 1000 {
		t.Errorf("a snapshot of %d bytes", len(a.body))
	}
	p.want("a role", p.post("access", object{"do": "role-add", "role": "r"}), 200)
	p.want("a permission",
		p.post("access", object{"do": "role-grant", "role": "r", "key": b64("x/"), "prefix": true,
			"permission": "read"}), 200)
	p.want("a permission of no kind",
		p.post("access", object{"do": "role-grant", "role": "r", "key": b64("x/"),
			"permission": "all"}), 400)
	p.want("a user without a password", p.post("access", object{"do": "user-add", "user": "u"}),
		400, "password")
	p.want("a user", p.post("access",
		object{"do": "user-add", "user": "<script>", "password": "p"}), 200)
	p.want("its role", p.post("access",
		object{"do": "user-grant", "user": "<script>", "role": "r"}), 200)
	a := p.want("users and roles", p.get("access"), 200, `"roles":["r"]`, b64("x0"))
	if strings.Contains(a.body, "<script>") {
		t.Error("the name of a user is sent as it is")
	}
}

// TestConsoleCertificate: a client certificate names the user, and a cookie is not needed.
func TestConsoleCertificate(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	ca.issue(t, "server", net.IPv4(127, 0, 0, 2))
	ca.issue(t, "alice", nil)
	ca.issue(t, "nobody", nil)
	c := Config{UnsafeNoSync: true,
		ClientTLS: TLS{CertFile: filepath.Join(dir, "server.pem"),
			KeyFile:       filepath.Join(dir, "server-key.pem"),
			TrustedCAFile: filepath.Join(dir, "ca.pem"), ClientCertAuth: true},
		ListenClientHTTPURLs: []string{"https://127.0.0.2:0"}}
	v := newVault(t, c)
	v.put("a1")
	<-v.m.Serving()
	var addr string
	for _, l := range v.m.listeners {
		if l.http {
			addr = l.listener.Addr().String()
		}
	}
	for name, want := range map[string]string{"alice": `"user":"alice"`, "nobody": `"user":""`} {
		pair, err := tls.LoadX509KeyPair(filepath.Join(dir, name+".pem"),
			filepath.Join(dir, name+"-key.pem"))
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AddCert(ca.cert)
		p := newPage(t, addr)
		p.url = "https://" + addr
		p.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}}
		p.want(name, p.get("session"), 200, want)
		p.want(name+" from another site",
			p.send("GET", "/console/api/session", "", "Sec-Fetch-Site: cross-site"), 403)
		if name == "alice" {
			p.want("her key", p.get("key", "key=a1"), 200, b64("a1"))
			p.want("the key of others", p.get("key", "key=secret"), 403)
			p.want("the watchers", p.get("watchers"), 403)
			a := p.want("another user by a password",
				p.post("login", object{"name": "root", "password": "root"}), 200)
			if !strings.Contains(a.header.Get("Set-Cookie"), "Secure") {
				t.Error("the cookie is not for TLS only")
			}
			p.want("the token counts", p.get("session"), 200, `"user":"root"`)
		}
	}
}

// authority issues certificates for a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	a := &authority{dir: dir}
	a.cert, a.key = a.make(t, "ca",
		&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) issue(t *testing.T, name string, ip net.IP) {
	t.Helper()
	c := &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth,
		x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature}
	if ip != nil {
		c.IPAddresses = []net.IP{ip}
	}
	a.make(t, name, c)
}

// make writes a certificate, signed by the authority or by itself, and its key.
func (a *authority) make(t *testing.T, name string, c *x509.Certificate) (*x509.Certificate,
	*ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name + ".pem": {Type: "CERTIFICATE", Bytes: der},
		name + "-key.pem": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return made, key
}
