// Package manual serves the pages of the project as HTML, from the Markdown files in docs. Alerts
// and findings link to them, so they must open without the internet and without a quorum.
//
//  1. A page depends on its path only. It has no script, and nothing of the cluster, so there is
//     nothing to protect: everyone who reaches the listener may read it.
//  2. Addresses are the paths of the Markdown files, so links between pages work as they are. A
//     path without ".md" names the same page. All links are relative: a proxy may serve the pages
//     below another path.
//  3. A link to a file of the repository that is not a page becomes plain text.
package manual

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

// Prefix is the path of all pages.
const Prefix = "/console/docs/"

// policy is the Content-Security-Policy of all answers. A picture may have styles of its own.
const policy = "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self'; base-uri " +
	"'none'; form-action 'none'; frame-ancestors 'none'"

// lineBreak is the only HTML that a page may contain: Markdown has no other line break inside a
// table cell.
const lineBreak = "<br>"

// index is the page of a directory.
const index = "README.md"

//go:embed style.css
var style []byte

var frame = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<link rel="stylesheet" href="{{.Top}}style.css">
</head>
<body>
<nav><a href="{{.Top}}.">All pages</a> · <a href="{{.Top}}..">Console</a> · docs/{{.Path}}</nav>
<main>
{{.Body}}</main>
</body>
</html>
`))

// Handler returns a handler of the paths below Prefix. files are those of package docs.
func Handler(files fs.FS) http.Handler {
	m := &manual{files: files, markdown: goldmark.New(
		goldmark.WithExtensions(extension.Linkify, extension.Strikethrough,
			// An attribute, since the policy forbids styles in the text.
			extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute))),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))}
	return m
}

type manual struct {
	files    fs.FS
	markdown goldmark.Markdown
}

var kinds = map[string]string{".png": "image/png", ".svg": "image/svg+xml",
	".md": "text/html; charset=utf-8"}

// ServeHTTP implements http.Handler.
func (m *manual) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	if name == "style.css" {
		h.Set("Content-Type", "text/css; charset=utf-8")
		w.Write(style)
		return
	}
	file, isDir := m.find(name)
	switch {
	case file == "":
		http.Error(w, fmt.Sprintf("There is no page %q. All pages: %s", name, Prefix),
			http.StatusNotFound)
		return
	case name != "" && isDir != strings.HasSuffix(name, "/"):
		// Links of the page are relative to its directory.
		to := path.Base(name) + "/"
		if !isDir {
			to = "../" + path.Base(name)
		}
		h.Set("Location", to)
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	content, err := fs.ReadFile(m.files, file)
	if err == nil && path.Ext(file) == ".md" {
		content, err = m.render(file, strings.Repeat("../", strings.Count(name, "/")), content)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.Set("Content-Type", kinds[path.Ext(file)])
	w.Write(content)
}

// find returns the file of a path, or "" if there is none, and whether the path is a directory.
func (m *manual) find(name string) (file string, isDir bool) {
	clean := path.Clean(strings.TrimSuffix(name, "/"))
	if name != "" && clean != strings.TrimSuffix(name, "/") {
		return "", false // links would lead elsewhere
	}
	for _, file := range []string{clean, clean + ".md", path.Join(clean, index)} {
		if info, err := fs.Stat(m.files, file); err == nil && !info.IsDir() &&
			kinds[path.Ext(file)] != "" {
			return file, file == path.Join(clean, index)
		}
	}
	return "", false
}

// render returns a page as HTML. top is the relative link from its address to the root of the
// manual.
func (m *manual) render(name, top string, source []byte) ([]byte, error) {
	doc := m.markdown.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	title := name
	var outside, breaks []ast.Node
	err := ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading:
			if entering && n.Level == 1 && title == name && n.Lines().Len() > 0 {
				line := n.Lines().At(0)
				title = string(line.Value(source))
			}
		case *ast.Link:
			if entering && !m.leads(name, string(n.Destination)) {
				outside = append(outside, n)
			}
		case *ast.RawHTML:
			if entering && string(n.Segments.Value(source)) == lineBreak {
				breaks = append(breaks, n)
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return nil, err
	}
	for _, n := range outside {
		for c := n.FirstChild(); c != nil; c = n.FirstChild() {
			n.Parent().InsertBefore(n.Parent(), n, c)
		}
		n.Parent().RemoveChild(n.Parent(), n)
	}
	for _, n := range breaks {
		b := ast.NewString([]byte(lineBreak))
		b.SetCode(true) // not escaped
		n.Parent().ReplaceChild(n.Parent(), n, b)
	}
	var body, whole bytes.Buffer
	if err := m.markdown.Renderer().Render(&body, source, doc); err != nil {
		return nil, err
	}
	err = frame.Execute(&whole,
		map[string]any{"Title": title, "Path": name, "Top": top,
			"Body": template.HTML(body.String())})
	return whole.Bytes(), err
}

// leads reports whether a link of a page leads to a page, a picture or another site.
func (m *manual) leads(page, target string) bool {
	u, err := url.Parse(target)
	if err != nil {
		return false
	}
	if u.IsAbs() || u.Path == "" {
		return true
	}
	file, _ := m.find(path.Join(path.Dir(page), u.Path))
	return file != ""
}

// anchors names headings as GitHub does, because the links of the pages are written for it.
type anchors map[string]bool

var notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)

// Generate implements parser.IDs.
func (a anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	base := strings.ReplaceAll(notInAnchor.ReplaceAllString(strings.ToLower(string(value)), ""),
		" ", "-")
	name := base
	for n := 1; a[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	a[name] = true
	return []byte(name)
}

// Put implements parser.IDs.
func (a anchors) Put(value []byte) { a[string(value)] = true }
