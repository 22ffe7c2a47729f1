package cloudtest

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"

	"vigil/test/proc"
)

const (
	// asServer makes the test's own program an object storage: its value is the scheme of its URLs,
	// s3 or gs.
	asServer = "CLOUDTEST_SERVER"
	// inDirectory is the directory of its buckets, and atAddress where it listens.
	inDirectory, atAddress = "CLOUDTEST_DIRECTORY", "CLOUDTEST_ADDRESS"

	// Credentials of S3, and those that Azurite knows.
	accessKey, secretKey      = "archive-writer", "a-secret-of-the-archive"
	azureAccount, azureSecret = "devstoreaccount1",
		"Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
	region                     = "us-east-1"
	health                     = "/healthy"
	requireAzure, azuriteStart = "VIGIL_AZURITE",
		"azurite/node_modules/azurite/dist/src/blob/main.js"
)

// serve is an object storage.
func serve(scheme, dir, address string) error {
	if scheme == "gs" {
		host, port, _ := strings.Cut(address, ":")
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return err
		}
		if _, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http",
			Host: host, Port: uint16(n), StorageRoot: dir, PublicHost: address}); err != nil {
			return err
		}
		select {}
	}
	b, err := posix.New(dir, meta.XattrMeta{}, posix.PosixOpts{NewDirPerm: 0o700, Concurrency: 100})
	if err != nil {
		return err
	}
	return embedgw.RunVersityGW(context.Background(), b,
		&embedgw.Config{RootUserAccess: accessKey, RootUserSecret: secretKey, Region: region,
			Ports: []string{address}, MaxConnections: 1000, MaxRequests: 1000,
			MultipartMaxParts: 100,
			Quiet:             true, KeepAlive: true, HealthPath: health})
}

// storage is a running object storage with one bucket, named archive.
type storage struct {
	t       *testing.T
	scheme  string
	dir     string
	address string
	command []string
	env     []string
	health  string // answers when the storage serves
	query   string // of its URLs
	// it is ended by a signal, because it keeps what it has acknowledged in memory for a time
	gentle  bool
	process *proc.Process
	// an environment with wrong credentials; none if the storage accepts all
	wrong  map[string]string
	secret string // what no error and no log may have
}

// each runs a test with every storage.
func each(t *testing.T, test func(t *testing.T, s *storage)) {
	for _, c := range []struct {
		name  string
		start func(t *testing.T) *storage
	}{{"s3", startS3}, {"gs", startGoogle}, {"azblob", startAzure}} {
		t.Run(c.name, func(t *testing.T) { test(t, c.start(t)) })
	}
}

// own makes the test's own program the storage.
func own(t *testing.T, scheme string) *storage {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &storage{t: t, scheme: scheme, dir: t.TempDir(),
		address: fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t)), command: []string{path}}
	s.env = []string{asServer + "=" + scheme, inDirectory + "=" + s.dir,
		atAddress + "=" + s.address}
	return s
}

// startS3 starts an object storage that speaks S3. It ends with the test.
func startS3(t *testing.T) *storage {
	t.Helper()
	s := own(t, "s3")
	// Nothing of the machine's own configuration is used.
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": accessKey,
		"AWS_SECRET_ACCESS_KEY": secretKey, "AWS_SESSION_TOKEN": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	// A bucket is a directory.
	if err := os.Mkdir(filepath.Join(s.dir, "archive"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.health, s.query, s.secret = health, "region="+region+"&endpoint=http://"+s.address+
		"&use_path_style=true", secretKey
	s.wrong = map[string]string{"AWS_SECRET_ACCESS_KEY": "not-the-secret-of-it"}
	s.begin()
	return s
}

// startGoogle starts an object storage that speaks the API of Google Cloud Storage. It ends with
// the test.
func startGoogle(t *testing.T) *storage {
	t.Helper()
	s := own(t, "gs")
	t.Setenv("STORAGE_EMULATOR_HOST", s.address)
	s.health = "/_internal/healthcheck"
	s.begin()
	res, err := http.Post("http://"+s.address+"/storage/v1/b?project=test", "application/json",
		strings.NewReader(`{"name": "archive"}`))
	if err != nil {
		t.Fatal(err)
	}
	if _ = res.Body.Close(); res.StatusCode != http.StatusOK {
		t.Fatal("the bucket was not made: ", res.Status)
	}
	return s
}

// startAzure starts an object storage that speaks the API of Azure Blob. It ends with the test.
func startAzure(t *testing.T) *storage {
	t.Helper()
	skip := t.Skipf
	if os.Getenv(requireAzure) != "" {
		skip = t.Fatalf
	}
	node, err := exec.LookPath("node")
	if err != nil {
		skip("Node is not installed, which Azurite needs")
	}
	if _, err := os.Stat(azuriteStart); err != nil {
		skip("Azurite is not installed: make bucket-azure-test does that")
	}
	s := &storage{t: t, scheme: "azblob", dir: t.TempDir(),
		address: fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t)), gentle: true, health: "/",
		secret: azureSecret}
	host, port, _ := strings.Cut(s.address, ":")
	s.command = []string{node, azuriteStart, "--blobHost", host, "--blobPort", port, "--location",
		s.dir, "--silent", "--disableTelemetry", "--skipApiVersionCheck"}
	for name, value := range map[string]string{"AZURE_STORAGE_ACCOUNT": azureAccount,
		"AZURE_STORAGE_KEY": azureSecret, "AZURE_STORAGE_SAS_TOKEN": "",
		"AZURE_STORAGE_CONNECTION_STRING": "", "AZURE_STORAGEBLOB_CONNECTIONSTRING": "",
		"AZURE_STORAGE_DOMAIN": "", "AZURE_STORAGE_PROTOCOL": ""} {
		t.Setenv(name, value)
	}
	s.query = "protocol=http&domain=" + s.address
	s.wrong = map[string]string{"AZURE_STORAGE_KEY": "bm90LXRoZS1zZWNyZXQtb2YtaXQ="}
	s.begin()
	key, err := azblob.NewSharedKeyCredential(azureAccount, azureSecret)
	if err != nil {
		t.Fatal(err)
	}
	c, err := azblob.NewClientWithSharedKeyCredential("http://"+s.address+"/"+
		azureAccount, key, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateContainer(t.Context(), "archive", nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// begin launches the storage. It ends with the test.
func (s *storage) begin() {
	s.t.Helper()
	s.launch()
	s.t.Cleanup(func() {
		s.process.Kill()
		if s.t.Failed() {
			s.t.Logf("the storage:\n%s", s.process.Log().Tail(40))
		}
	})
}

// launch starts the process and waits until it serves.
func (s *storage) launch() {
	s.t.Helper()
	var err error
	if s.process, err = proc.Launch(s.command, s.env); err != nil {
		s.t.Fatal(err)
	}
	until(s.t, "the storage serves", func() bool {
		select {
		case <-s.process.Exited():
			s.t.Fatalf("the storage has ended: %s\n%s", s.process.State(), s.process.Log().Tail(40))
		default:
		}
		client := http.Client{Timeout: 10 * time.Second}
		res, err := client.Get("http://" + s.address + s.health)
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode < http.StatusInternalServerError
	})
}

// kill ends the process.
func (s *storage) kill() {
	s.t.Helper()
	if s.gentle {
		if err := s.process.Signal(syscall.SIGTERM); err != nil {
			s.t.Fatal(err)
		}
		select {
		case <-s.process.Exited():
		case <-time.After(time.Minute):
			s.t.Fatal("the storage does not end")
		}
	}
	s.process.Kill()
}

// url returns the URL of a bucket of the storage.
func (s *storage) url(bucket, prefix string) string {
	query := []string{}
	if s.query != "" {
		query = append(query, s.query)
	}
	if prefix != "" {
		query = append(query, "prefix="+prefix)
	}
	u := s.scheme + "://" + bucket
	if len(query) > 0 {
		u += "?" + strings.Join(query, "&")
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
