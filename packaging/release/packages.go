package main

import (
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

const description = summary + `
 Vigil keeps the state of control planes, configuration, locks and leader
 election: small data that must not be lost, and of which many clients see
 every change in order. The clients of etcd, etcdctl and the API server of
 Kubernetes work with it unchanged.
 .
 This package has the server, vigil, and the command line, vigilctl.`

// writePackages writes the Debian and the RPM package of a platform.
func (r *release) writePackages(p platform, out string) error {
	if err := r.writeDeb(p, out); err != nil {
		return err
	}
	return r.writeRPM(p, out)
}

func (r *release) writeDeb(p platform, out string) error {
	contents, err := r.installed(p, debianDirs)
	if err != nil {
		return err
	}
	log, err := compress(fmt.Appendf(nil, "vigil (%s) stable; urgency=medium\n\n  * Version %s. The changes are in CHANGELOG.md of the sources.\n\n -- %s  %s\n",
		strings.Replace(r.version, "-", "~", 1), r.version, maintainer, r.source.time.Format("Mon, 02 Jan 2006 15:04:05 -0700")))
	if err != nil {
		return err
	}
	contents = append(contents, text("/usr/share/doc/vigil/changelog.gz", log))
	for from, to := range map[string]string{"deb/copyright": "/usr/share/doc/vigil/copyright", "deb/lintian-overrides": "/usr/share/lintian/overrides/vigil"} {
		b, err := packed.ReadFile("files/" + from)
		if err != nil {
			return err
		}
		contents = append(contents, text(to, b))
	}
	info, err := r.info(p, "deb", contents)
	if err != nil {
		return err
	}
	info.Section, info.Priority = "database", "optional"
	info.Depends = []string{"systemd | systemd-standalone-sysusers", "systemd | systemd-standalone-tmpfiles"}
	info.Deb.Compression = "gzip" // xz would be smaller by a quarter, and Go's takes a minute for a package
	return r.writePackage(deb.Default, info, out)
}

func (r *release) writeRPM(p platform, out string) error {
	contents, err := r.installed(p, fedoraDirs)
	if err != nil {
		return err
	}
	info, err := r.info(p, "rpm", contents)
	if err != nil {
		return err
	}
	info.Description = strings.NewReplacer("\n .\n ", "\n\n", "\n ", "\n").Replace(description[len(summary)+1:])
	info.Description = strings.TrimSpace(info.Description)
	info.RPM.Summary = strings.ToUpper(summary[:1]) + summary[1:]
	info.RPM.BuildHost = "localhost"
	info.RPM.Compression = "gzip:6"
	info.Depends = []string{"systemd"}
	return r.writePackage(rpm.DefaultRPM, info, out)
}

const maintainer = "Vigil maintainers <vigil@localhost.localdomain>"

// info describes a package. Contents that are not files yet are written into the stage, from where nfpm reads them.
func (r *release) info(p platform, format string, contents []file) (*nfpm.Info, error) {
	stage := filepath.Join(r.stage, format+"-"+p.arch)
	if err := os.MkdirAll(stage, 0o755); err != nil {
		return nil, err
	}
	info := &nfpm.Info{
		Name: "vigil", Arch: p.arch, Platform: p.os, Version: r.version, VersionSchema: "semver",
		Maintainer: maintainer, Description: description, License: "Apache-2.0", Homepage: "https://" + r.source.module, MTime: r.source.time,
		DisableGlobbing: true,
	}
	if !strings.Contains(r.source.module, ".") {
		info.Homepage = "" // the module has no public path yet
	}
	for i, f := range contents {
		c := &files.Content{
			Source: f.source, Destination: f.name, Type: files.TypeFile,
			FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: f.mode.Perm(), MTime: r.source.time},
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
	for name, to := range map[string]*string{
		"postinst": &info.Scripts.PostInstall, "prerm": &info.Scripts.PreRemove, "postrm": &info.Scripts.PostRemove,
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
	err := r.writeFile(filepath.Join(out, name), func(w io.Writer) error { return packager.Package(info, w) })
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
