package main

import (
	"bytes"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{{.Title}}</title>
<style>
body { max-width: 60rem; margin: 1rem auto; padding: 0 1rem; font-family: sans-serif; line-height: 1.5 }
pre { overflow-x: auto; padding: .6rem; background: #f4f4f4 }
table { border-collapse: collapse } td, th { border: 1px solid #ccc; padding: .2rem .5rem; vertical-align: top }
</style>
</head>
<body>
<p><a href="{{.Up}}docs/README.html">all pages</a> · {{.Path}}</p>
{{.Body}}</body>
</html>
`))

// site is one rendering. Paths are from the root of the repository, with slashes.
type site struct {
	root, out string
	markdown  goldmark.Markdown
	files     map[string]bool // linked files and folders, to copy and to list
}

// render writes a page for each Markdown file and returns their number.
func render(root, out string) (int, error) {
	s := &site{root: root, out: out, files: map[string]bool{}, markdown: goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))}
	pages, err := s.sources()
	if err != nil {
		return 0, err
	}
	for _, p := range pages {
		if err := s.page(p); err != nil {
			return 0, fmt.Errorf("%s: %w", p, err)
		}
	}
	for f := range s.files {
		if err := s.file(f); err != nil {
			return 0, err
		}
	}
	return len(pages), s.write("index.html", []byte(`<meta http-equiv="refresh" content="0; url=docs/README.html"><a href="docs/README.html">all pages</a>`+"\n"))
}

// sources returns the Markdown files.
func (s *site) sources() (out []string, err error) {
	return out, filepath.WalkDir(s.root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != s.root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "bin", "node_modules"}, d.Name())):
			return filepath.SkipDir
		case !d.IsDir() && filepath.Ext(name) == ".md":
			rel, err := filepath.Rel(s.root, name)
			out = append(out, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
}

// page renders one file.
func (s *site) page(name string) error {
	source, err := os.ReadFile(filepath.Join(s.root, name))
	if err != nil {
		return err
	}
	doc := s.markdown.Parser().Parse(text.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	title := name
	err = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		switch n := n.(type) {
		case *ast.Heading:
			if entering && n.Level == 1 && title == name && n.Lines().Len() > 0 {
				line := n.Lines().At(0)
				title = string(line.Value(source))
			}
		case *ast.Link:
			if entering {
				target, err := s.target(name, string(n.Destination))
				n.Destination = []byte(target)
				return ast.WalkContinue, err
			}
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return err
	}
	var body, whole bytes.Buffer
	if err := s.markdown.Renderer().Render(&body, source, doc); err != nil {
		return err
	}
	if err := page.Execute(&whole, map[string]any{
		"Title": title, "Path": name, "Up": strings.Repeat("../", strings.Count(name, "/")), "Body": template.HTML(body.String()),
	}); err != nil {
		return err
	}
	return s.write(html(name), whole.Bytes())
}

// copied ends the names of copies: browsers show them, and the go command does not take them for packages.
const copied = ".txt"

// html returns the page of a Markdown file.
func html(name string) string { return strings.TrimSuffix(name, ".md") + ".html" }

// target returns where a link of a page leads on the site.
func (s *site) target(from, link string) (string, error) {
	if strings.Contains(link, "://") || strings.HasPrefix(link, "#") || strings.HasPrefix(link, "mailto:") {
		return link, nil
	}
	file, anchor, _ := strings.Cut(link, "#")
	if anchor != "" {
		anchor = "#" + anchor
	}
	name := path.Join(path.Dir(from), file)
	info, err := os.Stat(filepath.Join(s.root, name))
	switch {
	case err != nil:
		return "", fmt.Errorf("link %s: %w", link, err)
	case path.Ext(name) == ".md":
		return html(file) + anchor, nil
	case info.IsDir():
		s.files[name] = true
		return path.Join(file, "index.html"), nil
	}
	s.files[name] = true
	return file + copied, nil
}

// file copies a linked file, or lists the files of a linked folder.
func (s *site) file(name string) error {
	full := filepath.Join(s.root, name)
	if info, err := os.Stat(full); err != nil || !info.IsDir() {
		b, err := os.ReadFile(full)
		if err != nil {
			return err
		}
		return s.write(name+copied, b)
	}
	entries, err := os.ReadDir(full)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	fmt.Fprintf(&list, "<!doctype html>\n<title>%[1]s</title>\n<h1>%[1]s</h1>\n<ul>\n", template.HTMLEscapeString(name))
	for _, e := range entries {
		shown := template.HTMLEscapeString(e.Name())
		switch {
		case e.IsDir():
			fmt.Fprintf(&list, "<li>%s/</li>\n", shown)
		case path.Ext(e.Name()) == ".md":
			fmt.Fprintf(&list, "<li><a href=\"%s\">%s</a></li>\n", html(shown), shown)
		default:
			if err := s.file(path.Join(name, e.Name())); err != nil {
				return err
			}
			fmt.Fprintf(&list, "<li><a href=\"%[1]s%[2]s\">%[1]s</a></li>\n", shown, copied)
		}
	}
	list.WriteString("</ul>\n")
	return s.write(path.Join(name, "index.html"), list.Bytes())
}

func (s *site) write(name string, b []byte) error {
	full := filepath.Join(s.out, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	return os.WriteFile(full, b, 0o644)
}

// anchors makes the names of headings as GitHub does, because the links of the pages are written for it.
type anchors map[string]bool

var noAnchor = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)

// Generate implements parser.IDs.
func (a anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	base := strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(string(value)), ""), " ", "-")
	name := base
	for n := 1; a[name]; n++ {
		name = fmt.Sprintf("%s-%d", base, n)
	}
	a[name] = true
	return []byte(name)
}

// Put implements parser.IDs.
func (a anchors) Put(value []byte) { a[string(value)] = true }
