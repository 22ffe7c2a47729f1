package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	urls "net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vigil/test/proc"
)

// What a path of the API does at a member that has lost the others.
const (
	// what it says is of this member, or says of which members it is
	own     = "answers by itself"
	local   = "answers with local data" // and says so
	refused = "says that there is no leader"
)

// withoutQuorum are requests of all paths of the API, and what they do without a quorum. Users is
// what they do while there are users, if that is something else.
var withoutQuorum = map[string]struct{ request, does, users string }{
	"GET session": {"", own, ""}, "GET live": {"", own, ""}, "GET compare": {"", own, ""},
	"GET watchers": {"", own, ""}, "GET tail": {"?prefix=", own, ""},
	"GET snapshot": {"", own, ""}, "POST logout": {"{}", own, ""},
	"GET tree": {"?separator=/", local, ""}, "GET search": {"?sort=mod&values", local, ""},
	"GET count":   {"?key=Y29uZmlnLw==&prefix", local, ""},
	"GET key":     {"?key=Y29uZmlnL2FwcA==", local, ""},
	"GET history": {"?key=Y29uZmlnL2FwcA==", local, ""}, "GET changes": {"?prefix=", local, ""},
	"GET diff":     {"?key=Y29uZmlnL2FwcA==&a=2&b=3", local, ""},
	"GET revision": {"?at=NOW", local, ""},
	// A file does not say that it may be old; a snapshot can be taken.
	"GET export": {"?prefix=", refused, ""},
	// Only the leader knows how long leases last.
	"GET leases": {"", refused, ""}, "GET locks": {"", refused, ""},
	"GET access":  {"", refused, ""},
	"POST login":  {`{"name":"root","password":"secret"}`, refused, ""},
	"POST put":    {`{"key":"bmV3","value":"YQ==","mod":0}`, refused, ""},
	"POST delete": {`{"key":"Y29uZmlnL2FwcA==","mod":3}`, refused, ""},
	"POST import": {`{"lines":"{\"key\":\"a\",\"value\":\"b\"}"}`, refused, ""},
	"POST revoke": {`{"id":"7"}`, refused, ""},
	"POST access": {`{"do":"role-add","role":"new"}`, refused, ""},
	"POST member": {`{"do":"compact","revision":2}`, refused, ""},
}

// actionsWithoutQuorum is the same for the actions on members.
var actionsWithoutQuorum = map[string]string{
	`{"do":"add","urls":["http://127.0.0.1:1"],"learner":true}`: refused,
	`{"do":"remove","id":"OTHER"}`:                              refused,
	`{"do":"promote","id":"OTHER"}`:                             refused,
	`{"do":"move-leader","id":"OTHER"}`:                         refused,
	`{"do":"disarm","id":"OTHER","alarm":"NOSPACE"}`:            refused,
	`{"do":"defragment"}`:                                       own,
}

// prompt is how long an answer may take that waits for nothing. Waiting for a quorum takes 7 s.
const prompt = 4 * time.Second

// answer is what a path has answered: the first line of a stream, or all.
type answer struct {
	status int
	local  string
	body   string
	took   time.Duration
}

// ask sends a request to the console of a member.
func ask(t *testing.T, m *proc.Server, cookie, path, request string) answer {
	t.Helper()
	method, name, _ := strings.Cut(path, " ")
	url, body := "http://"+m.Addr()+"/console/api/"+name, ""
	if method == "GET" {
		url += strings.ReplaceAll(request, "NOW", fmt.Sprint(time.Now().UnixMilli()))
	} else {
		body = request
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vigil-Console", "1")
	if cookie != "" {
		r.Header.Set("Cookie", cookie)
	}
	start := time.Now()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Errorf("%s %s: %v", path, request, err)
		return answer{took: time.Since(start)}
	}
	defer res.Body.Close()
	var text []byte
	switch {
	case res.Header.Get("Content-Type") != "application/x-ndjson":
		text, err = io.ReadAll(io.LimitReader(res.Body, 1<<20))
	case name == "compare": // the last line is the result
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			text = bytes.Clone(lines.Bytes())
		}
	default:
		text, err = bufio.NewReader(res.Body).ReadBytes('\n')
	}
	if err != nil {
		t.Errorf("%s %s: %v", path, request, err)
	}
	local, err := urls.PathUnescape(res.Header.Get("X-Vigil-Local"))
	if err != nil {
		t.Error(err)
	}
	return answer{res.StatusCode, local, string(text), time.Since(start)}
}

// does describes what an answer is, or what is wrong with it.
func (a answer) does() string {
	var f struct{ Code, Error, Next string }
	_ = json.Unmarshal([]byte(a.body), &f) // a snapshot is not JSON
	switch {
	case a.took > prompt:
		return fmt.Sprintf("takes %v", a.took)
	case a.status == http.StatusOK && a.local == "":
		return own
	case a.status == http.StatusOK && strings.Contains(a.local, "has had no leader"):
		return local
	case a.status == http.StatusServiceUnavailable && f.Code == "leaderless" &&
		strings.Contains(f.Error, "no leader") && strings.Contains(f.Next, "overview"):
		return refused
	}
	return fmt.Sprintf("answers %d, local %q", a.status, a.local)
}

// apiPaths returns the paths that the console serves.
func apiPaths(t *testing.T) (paths []string) {
	t.Helper()
	src, err := os.ReadFile("../../internal/edge/console/routes.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`c\.call\("(GET|POST)", "(\w+)"|c\.stream\("(\w+)"|"(GET|POST) "\+apiPrefix\+"(\w+)"`).FindAllStringSubmatch(string(src), -1) {
		if m[3] != "" {
			paths = append(paths, "GET "+m[3])
		} else {
			paths = append(paths, m[1]+m[4]+" "+m[2]+m[5])
		}
	}
	slices.Sort(paths)
	return paths
}

// login returns the cookie of a user.
func login(t *testing.T, m *proc.Server, user string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "POST",
		"http://"+m.Addr()+"/console/api/login",
		strings.NewReader(fmt.Sprintf(`{"name":%q,"password":"secret"}`, user)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Vigil-Console", "1")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || len(res.Cookies()) != 1 {
		t.Fatalf("login: %s", res.Status)
	}
	c := res.Cookies()[0]
	return c.Name + "=" + c.Value
}

// TestWithoutQuorum asks one of three members for everything, while the others are dead or do not
// run: at once, and when it has noticed. Each path answers at once with what the member knows, or
// says what is missing and what to do.
func TestWithoutQuorum(t *testing.T) {
	paths := apiPaths(t)
	if known := slices.Sorted(maps.Keys(withoutQuorum)); !slices.Equal(paths, known) {
		t.Fatalf("the console has the paths %q, and there are requests for %q", paths, known)
	}
	for _, v := range []struct {
		name          string
		leads, frozen bool
		users         bool
	}{{name: "the leader, and the others are dead", leads: true},
		{name: "a follower, and the others are frozen", frozen: true},
		{name: "a follower with users, and the others are dead", users: true}} {
		t.Run(v.name, func(t *testing.T) {
			if testing.Short() && !v.leads {
				t.Skip("short")
			}
			members := cluster(t)
			c := connect(t, members[0], "")
			put(t, c, "config/app", "one")
			put(t, c, "config/app", "two")
			if _, err := c.Grant(t.Context(), 1000); err != nil {
				t.Fatal(err)
			}
			at := slices.Index(members, leader(t, members))
			if !v.leads {
				at = (at + 1) % 3
			}
			m, others := members[at], slices.Delete(slices.Clone(members), at, at+1)
			cookie := ""
			if v.users {
				enableAuth(t, c)
				cookie = login(t, m, "root")
			}
			list, err := connect(t, m,
				map[bool]string{true: "root"}[v.users]).MemberList(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			other := ""
			for _, x := range list.Members {
				if x.Name == "m"+fmt.Sprint(1+slices.Index(members, others[0])) {
					other = fmt.Sprintf("%x", x.ID)
				}
			}
			for end := time.Now().Add(patience); ask(t, m, cookie, "GET revision",
				withoutQuorum["GET revision"].request).does() != own; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the times of revisions are not known")
				}
			}
			if v.users { // one that this member has not seen
				cookie = login(t, others[0], "root")
			}
			for _, o := range others {
				if v.frozen {
					o.Pause()
					defer o.Resume()
				} else {
					o.Kill()
				}
			}
			// A request that is under way when the leader is lost does not wait longer than that
			// takes.
			if a := ask(t, m, cookie, "GET key",
				withoutQuorum["GET key"].request); a.does() != local && a.does() != own {
				t.Errorf("a read at once: %s: %s", a.does(), a.body)
			}
			if a := ask(t, m, cookie, "GET live", ""); a.does() != own {
				t.Errorf("the overview at once: %s: %s", a.does(), a.body)
			}
			select {
			case <-m.Log().Wait(`"to":"none"`):
			case <-time.After(patience):
				t.Fatal("the leader is not missed")
			}
			for _, path := range paths {
				x := withoutQuorum[path]
				a := ask(t, m, cookie, path, x.request)
				if a.does() != x.does {
					t.Errorf("%s %s, want: it %s: %.300s", path, a.does(), x.does, a.body)
				} else if testing.Verbose() {
					t.Logf("%-14s %-30s in %3d ms: %.160s", path, x.does, a.took.Milliseconds(),
						a.local+a.body)
				}
			}
			for request, does := range actionsWithoutQuorum {
				request = strings.ReplaceAll(request, "OTHER", other)
				if a := ask(t, m, cookie, "POST member", request); a.does() != does {
					t.Errorf("%s %s, want: it %s: %.300s", request, a.does(), does, a.body)
				}
			}
			if v.users { // an expired session waits for nobody
				if a := ask(t, m, strings.Split(cookie, "=")[0]+"=e30", "GET session",
					""); a.does() != own {
					t.Errorf("without a session: %s: %s", a.does(), a.body)
				}
			}
			// With a quorum nothing is local any more.
			for _, o := range others {
				if v.frozen {
					o.Resume()
				} else {
					o.Restart()
				}
			}
			for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
				if a := ask(t, m, cookie, "GET key",
					withoutQuorum["GET key"].request); a.does() == own {
					break
				} else if time.Now().After(end) {
					t.Fatalf("with a quorum: %s: %s", a.does(), a.body)
				}
			}
		})
	}
}
