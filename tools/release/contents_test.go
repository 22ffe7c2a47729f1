package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cavaliergopher/cpio"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// listing describes the files of an archive: their modes, owners and names. The commands of
// vigilctl have a page each, which the list has one line for, as TestManual compares them with the
// commands.
func listing(t *testing.T, r io.Reader) string {
	t.Helper()
	var lines []string
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return fold(lines)
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %d/%d %s", h.FileInfo().Mode(), h.Uid, h.Gid, h.Name))
	}
}

// onePage is a page of the documents. A list has one line for those of a directory.
var onePage = regexp.MustCompile(`(docs/([a-z-]+/)*)[^/]+\.md$`)

func fold(lines []string) string {
	seen := map[string]bool{}
	lines = slices.DeleteFunc(lines, func(l string) bool {
		short := onePage.ReplaceAllString(l, "${1}PAGE")
		again := short != l && seen[short]
		seen[short] = true
		return again
	})
	for i, l := range lines {
		l = onePage.ReplaceAllString(l, "${1}PAGE")
		lines[i] = l
		if at := strings.Index(l, "/man1/vigilctl-"); at >= 0 {
			lines[i] = l[:at] + "/man1/vigilctl-COMMAND.1.gz"
		}
		lines[i] = strings.ReplaceAll(lines[i], "linux-"+runtime.GOARCH, "linux-ARCH")
	}
	return strings.Join(slices.Compact(lines), "\n") + "\n"
}

// products are the products, with the prefix of the files in testdata.
var products = []struct{ name, prefix string }{{"vigil", ""}, {"vigil-bucket", "bucket-"}}

func TestArchiveContents(t *testing.T) {
	for _, d := range products {
		f, err := os.Open(artifact(t, d.name, ".tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, d.prefix+"archive.txt", listing(t, z))
	}
}

func TestDebContents(t *testing.T) {
	need(t, "dpkg-deb")
	for _, d := range products {
		deb := artifact(t, d.name, ".deb")
		golden(t, d.prefix+"deb.txt",
			listing(t, strings.NewReader(runProgram(t, "dpkg-deb", "--fsys-tarfile", deb))))
		var control strings.Builder
		for _, line := range strings.SplitAfter(runProgram(t, "dpkg-deb", "--field", deb), "\n") {
			if !strings.HasPrefix(line, "Installed-Size:") {
				control.WriteString(strings.ReplaceAll(line, "Architecture: "+runtime.GOARCH,
					"Architecture: ARCH"))
			}
		}
		golden(t, d.prefix+"deb-control.txt", control.String())
		golden(t, d.prefix+"deb-scripts.txt",
			listing(t, strings.NewReader(runProgram(t, "dpkg-deb", "--ctrl-tarfile", deb))))
	}
	if got := runProgram(t, "dpkg-deb", "--info", artifact(t, "vigil", ".deb"),
		"conffiles"); got != "/etc/vigil/vigil.yaml\n" {
		t.Errorf("configuration files: %q", got)
	}
}

// TestLintian: Debian's linter finds nothing wrong.
func TestLintian(t *testing.T) {
	inFull(t)
	need(t, "lintian")
	for _, d := range products {
		out, err := exec.Command("lintian", "--allow-root", "--no-cfg", "--fail-on",
			"error,warning", "--tag-display-limit", "0",
			artifact(t, d.name, ".deb")).CombinedOutput()
		if err != nil || strings.Contains(string(out), "W:") ||
			strings.Contains(string(out), "E:") {
			t.Errorf("%s: %v\n%s", d.name, err, out)
		}
	}
}

func TestRPMContents(t *testing.T) {
	for _, d := range products {
		t.Run(d.name, func(t *testing.T) { testRPMContents(t, d.name, d.prefix) })
	}
}

func testRPMContents(t *testing.T, product, prefix string) {
	name := artifact(t, product, ".rpm")
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("\x1f\x8b\x08\x00"))
	if at < 0 {
		t.Fatal("no payload that is compressed by gzip")
	}
	z, err := gzip.NewReader(bytes.NewReader(b[at:]))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for in := cpio.NewReader(z); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s", h.FileInfo().Mode(), h.Name))
	}
	slices.Sort(lines)
	golden(t, prefix+"rpm.txt", fold(lines))
	t.Run("rpm", func(t *testing.T) {
		inFull(t)
		need(t, "rpm")
		got := runProgram(t, "rpm", "-qp", "--nosignature", "--qf",
			"%{NAME} %{VERSION} %{RELEASE} %{OS} %{LICENSE} %{BUILDHOST} %{PAYLOADCOMPRESSOR}\n%{SUMMARY}\n%{DESCRIPTION}\n", name)
		got += "configuration: " + runProgram(t, "rpm", "-qpc", "--nosignature", name) +
			runProgram(t, "rpm", "-qp", "--nosignature", "--scripts", name)
		if product == "vigil-bucket" {
			got += "requires: " + strings.Split(runProgram(t, "rpm", "-qpR", "--nosignature", name),
				"\n")[0] + "\n"
		}
		golden(t, prefix+"rpm-header.txt", got)
	})
}

func TestImageContents(t *testing.T) {
	f, err := os.Open(artifact(t, "vigil", "-oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir := t.TempDir()
	untar(t, f, dir)
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil || len(top.Manifests) != 1 ||
		top.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != testVersion {
		t.Fatalf("%+v %v", top, err)
	}
	inner, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := inner.IndexManifest()
	if err != nil || len(images.Manifests) != 1 ||
		images.Manifests[0].Platform.Architecture != runtime.GOARCH {
		t.Fatalf("%+v %v", images, err)
	}
	img, err := inner.Image(images.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "image.txt", listing(t, mutate.Extract(img)))
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || config.OS != "linux" ||
		config.Config.Healthcheck == nil {
		t.Errorf("%+v", config)
	}
	// The image that users build themselves has the same settings.
	r, _ := sharedRelease(t)
	dockerfile, err := r.source.read("packaging/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range append(config.Config.Env[1:], "USER "+config.Config.User,
		`ENTRYPOINT ["`+config.Config.Entrypoint[0]+`"]`, "WORKDIR "+config.Config.WorkingDir,
		"EXPOSE 2379 2380") {
		if !bytes.Contains(dockerfile, []byte(want)) {
			t.Errorf("packaging/Dockerfile has no %s", want)
		}
	}
}

// TestImageSkopeo: another program reads the image, in both of its forms.
func TestImageSkopeo(t *testing.T) {
	inFull(t)
	need(t, "skopeo")
	name := artifact(t, "vigil", "-oci.tar")
	for _, from := range []string{"oci-archive:" + name + ":" + testVersion,
		"docker-archive:" + name + ":vigil:" + testVersion + "-" + runtime.GOARCH} {
		got := runProgram(t, "skopeo", "inspect", "--config", from)
		if !strings.Contains(got, `"User": "65532:65532"`) {
			t.Errorf("%s: %s", from, got)
		}
	}
}
