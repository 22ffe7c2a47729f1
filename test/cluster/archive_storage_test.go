package cluster

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"vigil/test/link"
	"vigil/test/proc"
)

// storage is where a test keeps an archive.
type storage interface {
	// url is the archive; server and ctl are further flags of vigil and of vigilctl archive.
	url() string
	server() []string
	ctl() []string
	// hang makes the storage unreachable: requests do not return, if this storage can do that.
	// refuse ends it with an error. back makes it reachable again.
	hang()
	refuse()
	back()
	// slow delays each request, 0 for no longer. It returns false if this storage cannot.
	slow(d time.Duration) bool
}

// newStorage returns a directory, or with VIGIL_ARCHIVE_S3 an object storage that speaks S3.
func newStorage(t testing.TB) storage {
	if os.Getenv("VIGIL_ARCHIVE_S3") != "" {
		return newS3(t)
	}
	d := &directory{t: t, path: filepath.Join(dir(t), "bucket")}
	if err := os.Mkdir(d.path, 0o700); err != nil {
		t.Fatal(err)
	}
	return d
}

// directory is a directory, which is renamed while it is away.
type directory struct {
	t    testing.TB
	path string
}

func (d *directory) url() string             { return "file://" + d.path }
func (d *directory) server() []string        { return nil }
func (d *directory) ctl() []string           { return nil }
func (d *directory) slow(time.Duration) bool { return false }

func (d *directory) hang()   { d.rename(d.path, d.path+".away") }
func (d *directory) refuse() {}
func (d *directory) back()   { d.rename(d.path+".away", d.path) }

func (d *directory) rename(from, to string) {
	d.t.Helper()
	if err := os.Rename(from, to); err != nil {
		d.t.Fatal(err)
	}
}

// s3 is a process of the object storage that test/cloudtest has, behind a proxy.
type s3 struct {
	t                testing.TB
	network          *link.Network
	command          []string
	env              []string
	address, program string
	proxy            string
	process          *proc.Process
}

// newS3 builds the programs and starts the storage, which ends with the test.
func newS3(t testing.TB) *s3 {
	t.Helper()
	bin, data := t.TempDir(), t.TempDir()
	s := &s3{t: t, network: link.New(t), program: filepath.Join(bin, "vigil-bucket"),
		address: fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t))}
	s.command = []string{filepath.Join(bin, "storage")}
	// The test program of test/cloudtest is the storage when it has this environment.
	s.env = []string{"CLOUDTEST_SERVER=s3", "CLOUDTEST_DIRECTORY=" + data,
		"CLOUDTEST_ADDRESS=" + s.address}
	bucket := filepath.Join("..", "..", "bucket")
	for _, args := range [][]string{
		{"build", "-C", bucket, "-buildvcs=false", "-o", s.program, "."},
		{"test", "-C", "..", "-c", "-buildvcs=false", "-o", s.command[0], "./cloudtest"},
	} {
		if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
			t.Fatalf("go %q: %v\n%s", args, err, out)
		}
	}
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "archive-writer",
		"AWS_SECRET_ACCESS_KEY": "a-secret-of-the-archive", "AWS_SESSION_TOKEN": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	// A bucket is a directory.
	if err := os.Mkdir(filepath.Join(data, "archive"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.proxy = s.network.Node("s3", s.address)
	s.launch()
	t.Cleanup(func() { s.process.Kill() })
	return s
}

func (s *s3) launch() {
	s.t.Helper()
	var err error
	if s.process, err = proc.Launch(s.command, s.env); err != nil {
		s.t.Fatal(err)
	}
	client := http.Client{Timeout: 10 * time.Second}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if res, err := client.Get("http://" + s.address + "/healthy"); err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
		}
		if time.Now().After(end) {
			s.t.Fatalf("the storage does not serve after %v:\n%s", patience,
				s.process.Log().Tail(40))
		}
	}
}

func (s *s3) url() string {
	return "s3://archive?region=us-east-1&endpoint=http://" + s.proxy +
		"&use_path_style=true&prefix=prod/"
}
func (s *s3) server() []string { return []string{"--archive-program=" + s.program} }
func (s *s3) ctl() []string    { return []string{"--bucket-program=" + s.program} }

// rule sets the rule for both directions.
func (s *s3) rule(r link.Rule) {
	s.network.Set("", "s3", r)
	s.network.Set("s3", "", r)
}

func (s *s3) hang() { s.rule(link.Rule{Stall: true}) }

func (s *s3) refuse() {
	s.process.Kill()
	s.network.Heal()
}

func (s *s3) back() { s.launch() }

func (s *s3) slow(d time.Duration) bool {
	s.rule(link.Rule{Delay: d / 2, Jitter: d / 2})
	return true
}
