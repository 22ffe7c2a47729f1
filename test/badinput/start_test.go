package badinput

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"vigil/test/proc"
)

// startTimeout is how long a server that cannot start may take to say so.
const startTimeout = time.Minute

// snapshot describes everything below a directory.
func snapshot(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%s %s", info.Mode(), rel)
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %d %x", len(data), sha256.Sum256(data))
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return b.String()
}

// refused runs Vigil, which must give up with one line that matches, and must leave the directory
// as it is.
func refused(t *testing.T, dir, want string, args ...string) {
	t.Helper()
	before := snapshot(t, dir)
	res := proc.Run(t, startTimeout, proc.Spec{Name: proc.Path(t, proc.Vigil), Args: args})
	checkRefusal(t, res, want)
	if after := snapshot(t, dir); after != before {
		t.Errorf("the directory was\n%s\nand is now\n%s", before, after)
	}
}

func checkRefusal(t *testing.T, res proc.Result, want string) {
	t.Helper()
	if res.Code == 0 {
		t.Error("exit code 0")
	}
	var plain []string
	for line := range strings.Lines(res.Stderr) {
		if !strings.HasPrefix(line, "{") {
			plain = append(plain, strings.TrimRight(line, "\n"))
		}
	}
	if len(plain) != 1 || !regexp.MustCompile(want).MatchString(plain[0]) {
		t.Errorf("want one line that matches %q on stderr, have:\n%s", want, res.Stderr)
	} else {
		t.Logf("exit %d: %s", res.Code, plain[0])
	}
	if res.Stdout != "" {
		t.Errorf("stdout: %s", res.Stdout)
	}
}

// config returns a command line that would work, in a new directory that does not exist yet.
func config(t *testing.T) proc.Config {
	return proc.Config{DataDir: filepath.Join(t.TempDir(), "data"), ClientPort: proc.FreePort(t),
		PeerPort: proc.FreePort(t)}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ arg, want string }{
		{"--nonsense", `nonsense`},
		{"--nonsense=1", `nonsense`},
		{"stray", `stray`},
		{"--listen-client-urls=nonsense", `listen-client-urls.*nonsense`},
		{"--listen-client-urls=127.0.0.1:2379", `listen-client-urls.*127\.0\.0\.1:2379`},
		{"--listen-client-urls=http://127.0.0.1", `listen-client-urls`},
		{"--listen-client-urls=ftp://127.0.0.1:1", `listen-client-urls.*ftp`},
		{"--listen-client-urls=http://127.0.0.1:99999", `99999`},
		{"--listen-client-urls=http://example.com:2379", `listen-client-urls.*example\.com`},
		{"--listen-client-urls=http://127.0.0.1:x", `listen-client-urls`},
		{"--listen-client-urls=http://192.0.2.1:2379", `192\.0\.2\.1`},
		{"--listen-peer-urls=nonsense", `listen-peer-urls`},
		{"--advertise-client-urls=nonsense", `advertise-client-urls`},
		{"--initial-advertise-peer-urls=nonsense", `initial-advertise-peer-urls`},
		{"--initial-cluster=nonsense", `initial-cluster`},
		{"--initial-cluster=other=http://127.0.0.1:2380", `initial-cluster.*m1`},
		{"--max-txn-ops=x", `max-txn-ops`},
		{"--heartbeat-interval=0x", `heartbeat-interval`},
		{"--initial-cluster-state=nonsense", `initial-cluster-state.*nonsense`},
	} {
		t.Run(c.arg, func(t *testing.T) {
			t.Parallel()
			cfg := config(t)
			cfg.Args = []string{c.arg}
			refused(t, filepath.Dir(cfg.DataDir), c.want, cfg.CommandLine()...)
		})
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	for _, which := range []string{"client", "peer"} {
		t.Run(which, func(t *testing.T) {
			cfg := config(t)
			if which == "client" {
				cfg.ClientPort = taken
			} else {
				cfg.PeerPort = taken
			}
			refused(t, filepath.Dir(cfg.DataDir), fmt.Sprintf(`127\.0\.0\.1:%d.*in use`, taken),
				cfg.CommandLine()...)
		})
	}
}

// TestLocked starts a second server on a directory that the first one has open.
func TestLocked(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil})
	cfg := config(t)
	cfg.DataDir = s.DataDir()
	res := proc.Run(t, startTimeout,
		proc.Spec{Name: proc.Path(t, proc.Vigil), Args: cfg.CommandLine()})
	checkRefusal(t, res, `(?i)lock|in use`)
	if _, err := s.Client().Put(proc.Context(t), "k", "v"); err != nil {
		t.Errorf("the first server: %v", err)
	}
	// Once the first one is gone, however it went, the directory is free.
	s.Kill()
	s.Restart()
	if got, err := s.Client().Get(proc.Context(t), "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("after the restart: %v %v", got, err)
	}
}

// TestEtcdDirectory starts Vigil on what a stock etcd wrote.
func TestEtcdDirectory(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Etcd})
	if _, err := s.Client().Put(proc.Context(t), "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	cfg := config(t)
	cfg.DataDir = s.DataDir()
	refused(t, s.DataDir(), `etcd`, cfg.CommandLine()...)
	s.Restart()
	if got, err := s.Client().Get(proc.Context(t), "k"); err != nil || len(got.Kvs) != 1 {
		t.Errorf("etcd after it: %v %v", got, err)
	}
}

// written makes a data directory with something in it and returns a configuration for it.
func written(t *testing.T, args ...string) proc.Config {
	t.Helper()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Args: args})
	for _, k := range []string{"a", "b", "c"} {
		if _, err := s.Client().Put(proc.Context(t), k, "v"); err != nil {
			t.Fatal(err)
		}
	}
	if code := s.Stop(); code != 0 {
		t.Fatalf("exit code %d after SIGTERM:\n%s", code, s.Log().Tail(20))
	}
	cfg := config(t)
	cfg.DataDir = s.DataDir()
	cfg.Args = args
	return cfg
}

// patch changes every file of a format: those that begin with a magic.
func patch(t *testing.T, dir, magic string, change func(b []byte)) int {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil || !strings.HasPrefix(string(b), magic) {
			return err
		}
		n++
		change(b)
		return os.WriteFile(path, b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The two formats on disk: the magic that a file begins with, and how to sign a header after a
// change of the version at offset 8.
var formats = []struct {
	name, dir, magic string
	sign             func(b []byte)
}{
	{"wal", "wal", "VIGILWAL", func(b []byte) {
		c := crc32.Checksum(b[:12], castagnoli)
		binary.LittleEndian.PutUint32(b[12:], crc32.Update(c, castagnoli, b[16:4096]))
	}},
	{"history", "history", "VIGILHST", func(b []byte) {
		binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	}},
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func TestNewerFormat(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			cfg := written(t)
			n := patch(t, filepath.Join(cfg.DataDir, f.dir), f.magic, func(b []byte) {
				binary.LittleEndian.PutUint32(b[8:], 7)
				f.sign(b)
			})
			if n == 0 {
				t.Fatalf("no file begins with %s:\n%s", f.magic, snapshot(t, cfg.DataDir))
			}
			refused(t, cfg.DataDir, `version 7.*\b1\b|\b1\b.*version 7`, cfg.CommandLine()...)
		})
	}
}

// TestForeignDirectory mixes the directories of two members, and gives a member another identity.
func TestForeignDirectory(t *testing.T) {
	t.Parallel()
	mine, other := written(t), written(t)
	for _, dir := range []string{"wal", "history"} {
		t.Run(dir, func(t *testing.T) {
			cfg := config(t)
			lockFile(t, cfg.DataDir)
			for _, d := range []string{"wal", "history"} {
				from := mine.DataDir
				if d == dir {
					from = other.DataDir
				}
				if err := os.CopyFS(filepath.Join(cfg.DataDir, d),
					os.DirFS(filepath.Join(from, d))); err != nil {
					t.Fatal(err)
				}
			}
			refused(t, cfg.DataDir, `(?i)member|cluster|belongs`, cfg.CommandLine()...)
		})
	}
	t.Run("half", func(t *testing.T) {
		for _, d := range []string{"wal", "history"} {
			cfg := config(t)
			lockFile(t, cfg.DataDir)
			if err := os.CopyFS(filepath.Join(cfg.DataDir, d),
				os.DirFS(filepath.Join(mine.DataDir, d))); err != nil {
				t.Fatal(err)
			}
			refused(t, cfg.DataDir, `wal|history`, cfg.CommandLine()...)
		}
	})
}

// lockFile makes a data directory with the file that every server takes its lock on.
func lockFile(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "LOCK"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamaged flips one bit in the middle of a directory that was left cleanly: the start is
// refused by a line that names the file, or nothing is lost.
func TestDamaged(t *testing.T) {
	t.Parallel()
	for _, f := range formats {
		for _, at := range []int{0, 8, 20, 70, 200, 300, 4100, 4200} {
			t.Run(fmt.Sprintf("%s at %d", f.name, at), func(t *testing.T) {
				t.Parallel()
				cfg := written(t)
				patch(t, filepath.Join(cfg.DataDir, f.dir), f.magic, func(b []byte) {
					if at < len(b) {
						b[at] ^= 4
					}
				})
				s := startOrRefuse(t, cfg)
				if s == nil {
					return
				}
				got, err := s.Client().Get(proc.Context(t), "a")
				if err != nil || got.Header.Revision != 4 || len(got.Kvs) != 1 {
					t.Errorf("the member started and has lost something: %v %v", got, err)
				}
			})
		}
	}
}

// startOrRefuse starts a server; if it refuses, it must do so by the rules, and nil is returned.
func startOrRefuse(t *testing.T, cfg proc.Config) *proc.Server {
	t.Helper()
	cfg.Program = proc.Vigil
	s := proc.Try(t, cfg)
	if s != nil {
		return s
	}
	refused(t, cfg.DataDir, `(?i)corrupt|checksum|damaged|not a`, cfg.CommandLine()...)
	return nil
}

// TestReadOnly starts a server that may not write: as root, it runs as another user.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	for _, exists := range []bool{false, true} {
		t.Run(fmt.Sprintf("exists=%v", exists), func(t *testing.T) {
			t.Parallel()
			root, err := os.MkdirTemp("", "vigil-readonly-")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(root, 0o700); _ = os.RemoveAll(root) })
			cfg := config(t)
			cfg.DataDir = filepath.Join(root, "data")
			if exists {
				w := written(t)
				if err := os.CopyFS(cfg.DataDir, os.DirFS(w.DataDir)); err != nil {
					t.Fatal(err)
				}
			}
			binary := copyProgram(t, root)
			err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					return os.Chmod(path, 0o555)
				}
				if err == nil && path != binary {
					return os.Chmod(path, 0o444)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = filepath.WalkDir(root,
					func(path string, d fs.DirEntry,
						err error) error {
						return os.Chmod(path, 0o700)
					})
			})
			before := snapshot(t, root)
			spec := proc.Spec{Name: binary, Args: cfg.CommandLine()}
			if os.Getuid() == 0 {
				const nobody = 65534
				spec.User = &syscall.Credential{Uid: nobody, Gid: nobody}
			}
			checkRefusal(t, proc.Run(t, startTimeout, spec), `(?i)permission denied|read-only`)
			if after := snapshot(t, root); after != before {
				t.Errorf("the directory was\n%s\nand is now\n%s", before, after)
			}
		})
	}
}

// TestVersionAndHelp are the two that are no mistake.
func TestVersionAndHelp(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(proc.Path(t, proc.Vigil), "--version").Output()
	if err != nil || !regexp.MustCompile(`(?m)^etcd Version: 3\.7\.3$`).Match(out) {
		t.Errorf("--version: %v\n%s", err, out)
	}
	out, err = exec.Command(proc.Path(t, proc.Vigil), "--help").Output()
	if err != nil || !strings.Contains(string(out), "--listen-client-urls") {
		t.Errorf("--help: %v\n%s", err, out)
	}
}
