package manual

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"vigil/docs"
	"vigil/internal/health"
)

// get requests a path below Prefix, and follows no redirect.
func get(t *testing.T, files fs.FS, name string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	Handler(files).ServeHTTP(w, httptest.NewRequest("GET", Prefix+name, nil))
	body, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Result(), string(body)
}

var (
	linked = regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	named  = regexp.MustCompile(`id="([^"]*)"`)
)

// TestEveryLink follows each link and each picture of each page, to the heading.
func TestEveryLink(t *testing.T) {
	ids := map[string]map[string]bool{} // by the path after redirects
	load := func(p string) (headings map[string]bool, final string) {
		for range 2 {
			if ids[p] != nil {
				return ids[p], p
			}
			r, body := get(t, docs.Files, strings.TrimPrefix(p, Prefix))
			if r.StatusCode == http.StatusMovedPermanently {
				from, err := url.Parse(p)
				if err == nil {
					from, err = from.Parse(r.Header.Get("Location"))
				}
				if err != nil {
					t.Fatal(err)
				}
				p = from.Path
				continue
			}
			if r.StatusCode != http.StatusOK {
				return nil, p
			}
			ids[p] = map[string]bool{"": true}
			for _, m := range named.FindAllStringSubmatch(body, -1) {
				ids[p][m[1]] = true
			}
		}
		return ids[p], p
	}
	pages, links := 0, 0
	err := fs.WalkDir(docs.Files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".md" {
			return err
		}
		pages++
		r, body := get(t, docs.Files, name)
		if r.StatusCode != http.StatusOK || !strings.Contains(body, "<h1 id=") {
			t.Errorf("%s: %s, or no heading", name, r.Status)
		}
		base, err := url.Parse(Prefix + name)
		if err != nil {
			return err
		}
		for _, m := range linked.FindAllStringSubmatch(body, -1) {
			u, err := base.Parse(m[1])
			if err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
				continue
			}
			if strings.HasPrefix(m[1], "/") {
				t.Errorf("%s: %s leads out of the prefix of a proxy", name, m[1])
			}
			if u.Host != "" || u.Path == "/console/" {
				continue
			}
			links++
			if headings, _ := load(u.Path); !headings[u.Fragment] {
				t.Errorf("%s: %s leads nowhere", name, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if pages < 40 || links < 300 {
		t.Errorf("only %d pages with %d links", pages, links)
	}
}

// TestPagesOfFindings: what doctor, the console and alerts link to is here, as it is written.
func TestPagesOfFindings(t *testing.T) {
	for _, c := range health.Checks() {
		name, anchor, _ := strings.Cut(strings.TrimPrefix(c.Page, "docs/"), "#")
		r, body := get(t, docs.Files, name)
		if r.StatusCode != http.StatusOK ||
			anchor != "" && !strings.Contains(body, ` id="`+anchor+`"`) {
			t.Errorf("%s: %s, or no such heading", c.Page, r.Status)
		}
	}
}

func TestPaths(t *testing.T) {
	files := fstest.MapFS{
		"README.md":      {Data: []byte("# Pages\n")},
		"ops/README.md":  {Data: []byte("# Ops\n")},
		"ops/disk.md":    {Data: []byte("# Disks & <b>\n\n[home](../README.md) [top](../../ARCHITECTURE.md) [none](none.md) <script>x</script>\n\n## The disk is full\n\n| a | b |\n|--:|---|\n| 1 | 2<br>3<b onclick=\"x\">4</b> |\n")},
		"ops/a.png":      {Data: []byte("\x89PNG")},
		"docs.go":        {Data: []byte("package docs")},
		"empty/file.txt": {Data: []byte("x")},
	}
	for _, x := range []struct {
		name     string
		status   int
		contains string
		location string
	}{
		{"", 200, `<h1 id="pages">`, ""},
		{"README.md", 200, `<h1 id="pages">`, ""},
		{"README", 200, `<h1 id="pages">`, ""},
		{"ops", 301, "", "ops/"},
		{"ops/disk/", 301, "", "../disk"},
		{"ops/disk.md/", 301, "", "../disk.md"},
		{"style.css/", 404, "", ""},
		{"ops/.", 404, "", ""},
		{"ops/../ops", 404, "", ""},
		{"ops/", 200, `<h1 id="ops">`, ""},
		{"ops/disk.md", 200, `<h2 id="the-disk-is-full">`, ""},
		{"ops/disk", 200, `<title>Disks &amp; &lt;b&gt;</title>`, ""},
		{"ops/a.png", 200, "\x89PNG", ""},
		{"docs.go", 404, "There is no page", ""},
		{"empty", 404, "There is no page", ""},
		{"empty/file.txt", 404, "", ""},
		{"none.md", 404, "All pages: " + Prefix, ""},
		{"../../etc/passwd", 404, "", ""},
		{"/etc/passwd", 404, "", ""},
		{"ops//disk.md", 404, "", ""},
		{"style.css", 200, "body {", ""},
	} {
		r, body := get(t, files, x.name)
		if r.StatusCode != x.status || !strings.Contains(body, x.contains) ||
			r.Header.Get("Location") != x.location {
			t.Errorf("%q: %s, %q:\n%s", x.name, r.Status, r.Header.Get("Location"), body)
		}
		if r.Header.Get("Content-Security-Policy") != policy ||
			r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%q: headers %q", x.name, r.Header)
		}
	}
	_, body := get(t, files, "ops/disk.md")
	for _, want := range []string{`<a href="../README.md">home</a> top none`,
		`<th align="right">a</th>`, "2<br>3"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in:\n%s", want, body)
		}
	}
	if strings.Contains(body, "<script") || strings.Contains(body, "style=") ||
		strings.Contains(body, "onclick=") {
		t.Errorf("a script or a style, which browsers reject:\n%s", body)
	}
	w := httptest.NewRecorder()
	Handler(files).ServeHTTP(w, httptest.NewRequest("POST", Prefix, nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Error(w.Code, w.Header())
	}
}
