package main

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
)

// packed are the small files that only packages have: scripts, the user, directories.
//
//go:embed files
var packed embed.FS

// completionDirs are where a distribution looks for completions.
type completionDirs struct{ bash, fish, zsh string }

var (
	debianDirs = completionDirs{"usr/share/bash-completion/completions",
		"usr/share/fish/vendor_completions.d", "usr/share/zsh/vendor-completions"}
	fedoraDirs = completionDirs{"usr/share/bash-completion/completions",
		"usr/share/fish/vendor_completions.d", "usr/share/zsh/site-functions"}
)

// installed returns the files of a package that both distributions have.
func (r *release) installed(d *product, p platform, dirs completionDirs) ([]file, error) {
	if d == r.buckets {
		return r.installedBucket(p)
	}
	var out []file
	for _, name := range r.servers.on(p) {
		out = append(out, file{name: "/usr/bin/" + name, mode: 0o755, source: r.program(p, name)})
	}
	unit, err := r.source.read("packaging/systemd/vigil.service")
	if err != nil {
		return nil, err
	}
	const program = "=/usr/local/bin/vigil "
	if !bytes.Contains(unit, []byte(program)) {
		return nil, fmt.Errorf("packaging/systemd/vigil.service does not run %s", program[1:])
	}
	unit = bytes.ReplaceAll(unit, []byte(program), []byte("=/usr/bin/vigil "))
	out = append(out, text("/usr/lib/systemd/system/vigil.service", unit))
	for from, to := range map[string]string{"sysusers.conf": "/usr/lib/sysusers.d/vigil.conf",
		"tmpfiles.conf": "/usr/lib/tmpfiles.d/vigil.conf"} {
		b, err := packed.ReadFile("files/" + from)
		if err != nil {
			return nil, err
		}
		out = append(out, text(to, b))
	}
	settings, err := packed.ReadFile("files/vigil.yaml")
	if err != nil {
		return nil, err
	}
	out = append(out, file{name: "/etc/vigil/vigil.yaml", mode: 0o644, body: settings, conf: true})
	documents, err := r.documents(r.servers, "/usr/share/doc/vigil")
	if err != nil {
		return nil, err
	}
	out = append(out, documents...)
	read, err := r.pages("/usr/share/doc/vigil")
	if err != nil {
		return nil, err
	}
	out = append(out, read...)
	example, err := r.source.read("packaging/systemd/vigil.yaml")
	if err != nil {
		return nil, err
	}
	out = append(out, text("/usr/share/doc/vigil/examples/cluster.yaml", example))
	pages, err := r.manualPages("/usr/share/man")
	if err != nil {
		return nil, err
	}
	return slices.Concat(out, pages, r.completions(p, dirs)), nil
}

// installedBucket returns the files of the package vigil-bucket.
func (r *release) installedBucket(p platform) ([]file, error) {
	documents, err := r.documents(r.buckets, "/usr/share/doc/vigil-bucket")
	if err != nil {
		return nil, err
	}
	page, err := manualPage("/usr/share/man", bucketPage,
		r.manual.bucketPage(r.version, r.source.time))
	return append(documents, page,
		file{name: "/usr/bin/vigil-bucket", mode: 0o755, source: r.program(p, "vigil-bucket")}), err
}

// documents returns the licences and the list of the parts of a product.
func (r *release) documents(d *product, below string) ([]file, error) {
	licence, err := r.source.read("LICENSE")
	if err != nil {
		return nil, err
	}
	return []file{
		text(below+"/LICENSE", licence),
		text(below+"/THIRD-PARTY-LICENCES.txt", d.licences.text),
		text(below+"/sbom.cdx.json", d.sbom),
	}, nil
}

// pages returns the pages for operators, which doctor and the alerts name, and the files for
// monitoring that they install.
func (r *release) pages(below string) ([]file, error) {
	var out []file
	for _, tree := range []string{"docs", "packaging/monitoring"} {
		err := fs.WalkDir(os.DirFS(r.source.root), tree,
			func(name string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || path.Ext(name) == ".go" {
					return err
				}
				body, err := r.source.read(name)
				out = append(out, text(below+"/"+name, body))
				return err
			})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (r *release) manualPages(below string) ([]file, error) {
	var out []file
	pages := r.manual.pages(r.version, r.source.time)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		page, err := manualPage(below, name, pages[name])
		if err != nil {
			return nil, err
		}
		out = append(out, page)
	}
	return out, nil
}

// manualPage returns the file of a page, whose name ends with its section.
func manualPage(below, name string, page []byte) (file, error) {
	z, err := compress(page)
	return text(below+"/man"+strings.TrimPrefix(path.Ext(name), ".")+"/"+name+".gz", z), err
}

func (r *release) completions(p platform, dirs completionDirs) []file {
	var out []file
	own := completeVigil(r.manual.vigil)
	for _, program := range r.servers.on(p) {
		scripts := r.manual.completions
		if program == "vigil" {
			scripts = own
		}
		out = append(out,
			text("/"+dirs.bash+"/"+program, scripts["bash"]),
			text("/"+dirs.fish+"/"+program+".fish", scripts["fish"]),
			text("/"+dirs.zsh+"/_"+program, scripts["zsh"]))
	}
	return out
}
