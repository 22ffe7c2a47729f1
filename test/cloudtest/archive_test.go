package cloudtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"vigil/internal/bucket"
	"vigil/test/proc"
)

// vigilctl runs a command that must succeed.
func vigilctl(t *testing.T, args ...string) string {
	t.Helper()
	res := proc.Run(t, 5*time.Minute, proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args})
	if res.Code != 0 {
		t.Fatalf("vigilctl %q: exit code %d\n%s%s", args, res.Code, res.Stdout, res.Stderr)
	}
	return res.Stdout
}

// restored runs a member with the newest state of an archive, whose revisions are kept.
func restored(t *testing.T, url string) (*proc.Server, string) {
	t.Helper()
	data, port := filepath.Join(t.TempDir(), "restored"), proc.FreePort(t)
	peer := fmt.Sprintf("http://127.0.0.1:%d", port)
	out := vigilctl(t, "archive", "restore", url, "--bucket-program", program, "--latest",
		"--bump-revision", "0", "--data-dir", data, "--name", "r1",
		"--initial-cluster", "r1="+peer, "--initial-advertise-peer-urls", peer)
	return proc.Start(t,
		proc.Config{Program: proc.Vigil, Name: "r1", DataDir: data, PeerPort: port}), out
}

// The archive that the documents describe is verified and restored out of the object storage, into
// which the program has written it.
func TestGoldenArchive(t *testing.T) { each(t, goldenArchive) }

func goldenArchive(t *testing.T, s *storage) {
	url := s.url("archive", "prod/")
	b := open(t, url)
	golden := os.DirFS(filepath.Join("..", "..", "internal", "offline", "archive",
		"testdata", "v1"))
	err := fs.WalkDir(golden, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(golden, name)
		if err != nil {
			return err
		}
		return b.Put(t.Context(), name, data)
	})
	if err != nil {
		t.Fatal(err)
	}
	out := vigilctl(t, "archive", "verify", url, "--bucket-program", program)
	t.Log(out)
	if !strings.Contains(out,
		"2 states rebuilt, 1 of them also by entries; up to revision 82, index 115: nothing is damaged") {
		t.Errorf("verify: %s", out)
	}
	m, out := restored(t, url)
	t.Log(out)
	res, err := m.Client().Get(proc.Context(t), "k1")
	if err != nil || res.Header.Revision != 82 {
		t.Errorf("revision %d, %v", res.Header.Revision, err)
	}
	// Damage in the storage is named.
	const damaged = "log/0000000000000037-000000000000004e-8dde0480"
	data, err := bucket.ReadAll(t.Context(), b, damaged, bucket.MaxObject)
	if err == nil {
		err = b.Delete(t.Context(), damaged)
	}
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := b.Put(t.Context(), damaged, data); err != nil {
		t.Fatal(err)
	}
	bad := proc.Run(t, 5*time.Minute,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl),
			Args: []string{"archive", "verify", url, "--bucket-program", program}})
	if bad.Code != 1 || !strings.Contains(bad.Stdout+bad.Stderr, "DAMAGED") {
		t.Errorf("exit code %d\n%s%s", bad.Code, bad.Stdout, bad.Stderr)
	}
}

// A member archives into the object storage, which is away for a time: all entries arrive, and a
// member restored from them has every key.
func TestMember(t *testing.T) { each(t, archiveOfMember) }

func archiveOfMember(t *testing.T, s *storage) {
	url := s.url("archive", "prod/")
	m := proc.Start(t, proc.Config{Program: proc.Vigil,
		Args: []string{"--archive=" + url, "--archive-program=" + program,
			"--archive-base-interval=3s"}})
	c := m.Client()
	revision := int64(0)
	write := func(from, to int) {
		for i := from; i < to; i++ {
			res, err := c.Put(proc.Context(t), fmt.Sprintf("k%03d", i), strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			revision = res.Header.Revision
		}
	}
	archived := func() {
		t.Helper()
		upTo := regexp.MustCompile(`up to revision (\d+)`)
		var out string
		defer func() {
			if t.Failed() {
				t.Log(out)
			}
		}()
		until(t, fmt.Sprintf("revision %d is archived", revision), func() bool {
			res := proc.Run(t, 5*time.Minute,
				proc.Spec{Name: proc.Path(t, proc.Vigilctl),
					Args: []string{"archive", "verify", url, "--bucket-program", program}})
			out = res.Stdout + res.Stderr
			found := upTo.FindStringSubmatch(out)
			if res.Code != 0 || found == nil {
				return false
			}
			n, err := strconv.ParseInt(found[1], 10, 64)
			return err == nil && n >= revision
		})
		t.Log(out)
	}
	write(0, 100)
	archived()
	s.kill()
	write(100, 200)
	s.launch()
	write(200, 300)
	archived()
	for o, err := range bucket.All(t.Context(), open(t, url), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", o.Key, o.Size)
	}
	if s.secret != "" && strings.Contains(m.Log().String(), s.secret) {
		t.Error("the log of the member has the secret")
	}
	m.Kill()
	r, _ := restored(t, url)
	for i := range 300 {
		res, err := r.Client().Get(proc.Context(t), fmt.Sprintf("k%03d", i))
		if err != nil || len(res.Kvs) != 1 || string(res.Kvs[0].Value) != strconv.Itoa(i) {
			t.Fatalf("k%03d: %v, %v", i, res, err)
		}
	}
}
