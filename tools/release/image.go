package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user and group of the image. No distribution gives it to anybody.
const imageUser = 65532

// imageFiles returns the files of the image.
func (r *release) imageFiles(p platform) ([]file, error) {
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // trusted for older certificates only, which a file cannot say
		}
		if err := pem.Encode(&roots,
			&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	data := dir("/var/lib/vigil", 0o700)
	data.uid, data.gid = imageUser, imageUser
	tmp := dir("/tmp", 0o777|os.ModeSticky)
	out := []file{
		data, tmp,
		text("/etc/ssl/certs/ca-certificates.crt", roots.Bytes()),
		text("/etc/passwd", fmt.Appendf(nil,
			"root:x:0:0:root:/:/sbin/nologin\nvigil:x:%d:%[1]d:vigil:/var/lib/vigil:/sbin/nologin\n", imageUser)),
		text("/etc/group", fmt.Appendf(nil, "root:x:0:\nvigil:x:%d:\n", imageUser)),
	}
	for _, name := range r.servers.on(p) {
		out = append(out, file{name: "/usr/local/bin/" + name, mode: 0o755,
			source: r.program(p, name)})
	}
	documents, err := r.documents(r.servers, "/usr/share/doc/vigil")
	return append(out, documents...), err
}

// imageConfig says how containers run. Docker knows Healthcheck; Kubernetes has probes instead.
func (r *release) imageConfig() v1.Config {
	return v1.Config{
		User:         fmt.Sprintf("%d:%[1]d", imageUser),
		WorkingDir:   "/var/lib/vigil",
		Volumes:      map[string]struct{}{"/var/lib/vigil": {}},
		ExposedPorts: map[string]struct{}{"2379/tcp": {}, "2380/tcp": {}},
		Env: []string{
			"PATH=/usr/local/bin",
			"ETCD_DATA_DIR=/var/lib/vigil/data",
			"ETCD_LISTEN_CLIENT_URLS=http://0.0.0.0:2379",
			"ETCD_ADVERTISE_CLIENT_URLS=http://localhost:2379",
		},
		Entrypoint: []string{"/usr/local/bin/vigil"},
		StopSignal: "SIGTERM",
		Healthcheck: &v1.HealthConfig{
			Test:     []string{"CMD", "/usr/local/bin/vigilctl", "endpoint", "health"},
			Interval: 10 * time.Second, Timeout: 10 * time.Second,
			StartPeriod: time.Minute, Retries: 3,
		},
		Labels: r.annotations(),
	}
}

func (r *release) annotations() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "vigil",
		"org.opencontainers.image.description": summary,
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.source.commit,
		"org.opencontainers.image.created":     r.source.time.Format(time.RFC3339),
		"org.opencontainers.image.licenses":    "Apache-2.0",
	}
}

// image builds the image of a platform: one layer.
func (r *release) image(p platform) (v1.Image, error) {
	files, err := r.imageFiles(p)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := writeTar(&b, files, r.source.time); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression))
	if err != nil {
		return nil, err
	}
	at := v1.Time{Time: r.source.time}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		types.OCIConfigJSON)
	img, err = mutate.Append(img,
		mutate.Addendum{Layer: layer,
			History: v1.History{Created: at, CreatedBy: "make release",
				Comment: "vigil " + r.version}})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created, config.Config = p.os, p.arch, at,
		r.imageConfig()
	return mutate.ConfigFile(img, config)
}

// writeImage writes an OCI image layout as one file: an index with an image for each platform. A
// manifest.json next to it lets `docker load` without an image store of containerd read the images,
// too.
func (r *release) writeImage(platforms []platform, name string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	type dockerImage struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	var docker []dockerImage
	for _, p := range platforms {
		img, err := r.image(p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index,
			mutate.IndexAddendum{Add: img,
				Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
		m, err := img.Manifest()
		if err != nil {
			return err
		}
		docker = append(docker,
			dockerImage{blobName(m.Config.Digest), []string{"vigil:" + r.version + "-" + p.arch},
				[]string{blobName(m.Layers[0].Digest)}})
	}
	top := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{
			Add: index, Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": r.version}},
		})
	stage := filepath.Join(r.stage, "image")
	if _, err := layout.Write(stage, top); err != nil {
		return err
	}
	manifest, err := json.Marshal(docker)
	if err != nil {
		return err
	}
	files := []file{text("manifest.json", manifest)}
	err = filepath.WalkDir(stage, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		in, err := filepath.Rel(stage, path)
		files = append(files, file{name: filepath.ToSlash(in), mode: 0o644, source: path})
		return err
	})
	if err != nil {
		return err
	}
	return r.writeFile(name, func(w io.Writer) error { return writeTar(w, files, r.source.time) })
}

func blobName(h v1.Hash) string { return "blobs/" + strings.Replace(h.String(), ":", "/", 1) }
