package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	"github.com/goreleaser/nfpm/v2/deb"
	"github.com/goreleaser/nfpm/v2/files"
	"github.com/goreleaser/nfpm/v2/rpm"
)

// writePackages writes the Debian and the RPM packages of a platform.
func (r *release) writePackages(p platform, out string) error {
	for _, d := range r.products() {
		if err := r.writeDeb(d, p, out); err != nil {
			return err
		}
		if err := r.writeRPM(d, p, out); err != nil {
			return err
		}
	}
	return nil
}

// packageVersion is the version as packages have it: a release candidate is before its release.
func (r *release) packageVersion() string { return strings.Replace(r.version, "-", "~", 1) }

func (r *release) writeDeb(d *product, p platform, out string) error {
	contents, err := r.installed(d, p, debianDirs)
	if err != nil {
		return err
	}
	log, err := compress(fmt.Appendf(nil,
		"%s (%s) stable; urgency=medium\n\n  * Version %s. The changes are in CHANGELOG.md of the sources.\n\n -- %s  %s\n",
		d.name, r.packageVersion(), r.version, maintainer,
		r.source.time.Format("Mon, 02 Jan 2006 15:04:05 -0700")))
	if err != nil {
		return err
	}
	contents = append(contents, text("/usr/share/doc/"+d.name+"/changelog.gz", log))
	for from, to := range map[string]string{"deb/copyright": "/usr/share/doc/" + d.name +
		"/copyright", "deb/lintian-overrides": "/usr/share/lintian/overrides/" + d.name} {
		b, err := packed.ReadFile("files/" + from)
		if err != nil {
			return err
		}
		contents = append(contents,
			text(to, bytes.ReplaceAll(b, []byte("vigil: "), []byte(d.name+": "))))
	}
	info, err := r.info(d, p, "deb", contents)
	if err != nil {
		return err
	}
	info.Section, info.Priority = "database", "optional"
	info.Depends = []string{"systemd | systemd-standalone-sysusers",
		"systemd | systemd-standalone-tmpfiles"}
	if d == r.buckets {
		info.Depends = []string{"vigil (= " + r.packageVersion() + ")"}
	}
	// xz would be smaller by a quarter, and Go's takes a minute for a package
	info.Deb.Compression = "gzip"
	return r.writePackage(deb.Default, info, out)
}

func (r *release) writeRPM(d *product, p platform, out string) error {
	contents, err := r.installed(d, p, fedoraDirs)
	if err != nil {
		return err
	}
	info, err := r.info(d, p, "rpm", contents)
	if err != nil {
		return err
	}
	info.Description = strings.NewReplacer("\n .\n ", "\n\n", "\n ",
		"\n").Replace(info.Description[len(d.summary)+1:])
	info.Description = strings.TrimSpace(info.Description)
	info.RPM.Summary = strings.ToUpper(d.summary[:1]) + d.summary[1:]
	info.RPM.BuildHost = "localhost"
	info.RPM.Compression = "gzip:6"
	info.Depends = []string{"systemd"}
	if d == r.buckets {
		info.Depends = []string{"vigil = " + r.packageVersion()}
	}
	return r.writePackage(rpm.DefaultRPM, info, out)
}

const maintainer = "Vigil maintainers <vigil@localhost.localdomain>"

// info describes a package. Contents that are not files yet are written into the stage, from where
// nfpm reads them.
func (r *release) info(d *product, p platform, format string, contents []file) (*nfpm.Info, error) {
	stage := filepath.Join(r.stage, d.name+"-"+format+"-"+p.arch)
	if err := os.MkdirAll(stage, 0o755); err != nil {
		return nil, err
	}
	info := &nfpm.Info{
		Name: d.name, Arch: p.arch, Platform: p.os, Version: r.version, VersionSchema: "semver",
		Maintainer: maintainer, Description: d.summary + "\n" + d.description,
		License: "Apache-2.0", Homepage: "https://" + r.source.module, MTime: r.source.time,
		DisableGlobbing: true,
	}
	if !strings.Contains(r.source.module, ".") {
		info.Homepage = "" // the module has no public path yet
	}
	for i, f := range contents {
		c := &files.Content{
			Source: f.source, Destination: f.name, Type: files.TypeFile,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode.Perm(),
				MTime: r.source.time},
		}
		if f.conf {
			c.Type = files.TypeConfigNoReplace
		}
		if f.source == "" {
			c.Source = filepath.Join(stage, fmt.Sprintf("%03d", i))
			if err := os.WriteFile(c.Source, f.body, 0o644); err != nil {
				return nil, err
			}
		}
		info.Contents = append(info.Contents, c)
	}
	if d == r.buckets {
		return info, nil // its process belongs to vigil's
	}
	for name, to := range map[string]*string{
		"postinst": &info.Scripts.PostInstall, "prerm": &info.Scripts.PreRemove,
		"postrm": &info.Scripts.PostRemove,
	} {
		script, err := packed.ReadFile("files/" + format + "/" + name)
		if err != nil {
			return nil, err
		}
		*to = filepath.Join(stage, name)
		if err := os.WriteFile(*to, script, 0o755); err != nil {
			return nil, err
		}
	}
	return info, nil
}

func (r *release) writePackage(packager nfpm.Packager, info *nfpm.Info, out string) error {
	info = nfpm.WithDefaults(info)
	name := packager.ConventionalFileName(info)
	err := r.writeFile(filepath.Join(out, name),
		func(w io.Writer) error { return packager.Package(info, w) })
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
