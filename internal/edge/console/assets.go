package console

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"

	"vigil/internal/edge/console/assets"
)

// asset is an embedded file. The first request compresses it.
type asset struct {
	kind    string
	hashed  bool // the name contains a hash of the content
	content []byte
	packed  func() []byte
}

var kinds = map[string]string{".html": "text/html; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8", ".txt": "text/plain; charset=utf-8"}

// loadAssets returns the embedded files by name.
func loadAssets() (map[string]asset, error) {
	list, err := assets.Files.ReadDir(".")
	if err != nil {
		return nil, err
	}
	out := map[string]asset{}
	for _, f := range list {
		content, err := assets.Files.ReadFile(f.Name())
		if err != nil {
			return nil, err
		}
		ext := path.Ext(f.Name())
		out[f.Name()] = asset{kind: kinds[ext], hashed: ext == ".js" || ext == ".css",
			content: content,
			packed:  sync.OnceValue(func() []byte { return compress(content) })}
	}
	return out, nil
}

func compress(content []byte) []byte {
	var z bytes.Buffer
	w, _ := gzip.NewWriterLevel(&z, gzip.BestCompression) // the level is valid
	w.Write(content)
	w.Close()
	return z.Bytes()
}

// serveAsset serves a page, or a file that a page loads.
func (c *Console) serveAsset(w http.ResponseWriter, r *http.Request, name string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	if name == "" {
		name = "index.html"
	}
	a, ok := c.assets[name]
	if !ok {
		http.Error(w, "Not Found: the console is at "+Prefix, http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Vary", "Accept-Encoding")
	if a.hashed {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-cache")
	}
	content := a.content
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		content = a.packed()
		h.Set("Content-Encoding", "gzip")
	}
	h.Set("Content-Length", strconv.Itoa(len(content)))
	if r.Method == http.MethodGet {
		w.Write(content)
	}
}
