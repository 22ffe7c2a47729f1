package s3test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"vigil/test/proc"
)

const (
	// asServer makes the test's own program the object storage: its value is the directory of the buckets.
	asServer = "S3TEST_DIRECTORY"
	// atAddress is where it listens.
	atAddress = "S3TEST_ADDRESS"

	accessKey, secretKey = "archive-writer", "a-secret-of-the-archive"
	region               = "us-east-1"
	health               = "/healthy"
)

// program is the path of vigil-bucket.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		fmt.Fprintln(os.Stderr, serve(os.Getenv(asServer), os.Getenv(atAddress)))
		os.Exit(1)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "s3test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "vigil-bucket")
	if out, err := exec.Command("go", "build", "-C", "..", "-buildvcs=false", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	// Nothing of the machine's own configuration is used.
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": accessKey, "AWS_SECRET_ACCESS_KEY": secretKey, "AWS_SESSION_TOKEN": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true"} {
		if err := os.Setenv(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return m.Run()
}

// serve is the object storage.
func serve(dir, address string) error {
	b, err := posix.New(dir, meta.XattrMeta{}, posix.PosixOpts{NewDirPerm: 0o700, Concurrency: 100})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), b, &embedgw.Config{RootUserAccess: accessKey, RootUserSecret: secretKey, Region: region,
		Ports: []string{address}, MaxConnections: 1000, MaxRequests: 1000, MultipartMaxParts: 100, Quiet: true, KeepAlive: true, HealthPath: health})
}

// storage is a running object storage with one bucket, named archive.
type storage struct {
	t       *testing.T
	dir     string
	address string
	process *proc.Process
}

// start starts one. It ends with the test.
func start(t *testing.T) *storage {
	t.Helper()
	s := &storage{t: t, dir: t.TempDir(), address: fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t))}
	// A bucket is a directory.
	if err := os.Mkdir(filepath.Join(s.dir, "archive"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.launch()
	t.Cleanup(func() {
		s.process.Kill()
		if t.Failed() {
			t.Logf("the storage:\n%s", s.process.Log().Tail(40))
		}
	})
	return s
}

// launch starts the process and waits until it serves.
func (s *storage) launch() {
	s.t.Helper()
	own, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	if s.process, err = proc.Launch([]string{own}, []string{asServer + "=" + s.dir, atAddress + "=" + s.address}); err != nil {
		s.t.Fatal(err)
	}
	until(s.t, "the storage serves", func() bool {
		select {
		case <-s.process.Exited():
			s.t.Fatalf("the storage has ended: %s\n%s", s.process.State(), s.process.Log().Tail(40))
		default:
		}
		client := http.Client{Timeout: 10 * time.Second}
		res, err := client.Get("http://" + s.address + health)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// url returns the URL of a bucket of the storage.
func (s *storage) url(bucket, prefix string) string {
	u := "s3://" + bucket + "?region=" + region + "&endpoint=http://" + s.address + "&use_path_style=true"
	if prefix != "" {
		u += "&prefix=" + prefix
	}
	return u
}

// until waits for a condition.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout: %s", what)
		}
	}
}
