package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"golang.org/x/sys/unix"
)

// untar unpacks an archive, with its owners and modes if root does it.
func untar(t *testing.T, r io.Reader, dir string) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		check(err)
		name := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			check(os.MkdirAll(name, 0o755))
		} else {
			check(os.MkdirAll(filepath.Dir(name), 0o755))
			f, err := os.Create(name)
			check(err)
			_, err = io.Copy(f, in)
			check(errors.Join(err, f.Close()))
		}
		if os.Getuid() == 0 {
			check(os.Chown(name, h.Uid, h.Gid))
		}
		check(os.Chmod(name, h.FileInfo().Mode().Perm()))
	}
}

// TestImageRuns unpacks the image and runs it as a container would: as its user, with a root file
// system that cannot be written, in namespaces of its own, so that its ports are free. Its own
// health check says when it serves.
func TestImageRuns(t *testing.T) {
	r, _ := sharedRelease(t)
	if os.Getuid() != 0 {
		t.Skip("needs root for namespaces and the user of the image")
	}
	img, err := r.image(r.platforms[0])
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	untar(t, mutate.Extract(img), root)
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(config.Config)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), "VIGIL_IN_IMAGE="+root, "VIGIL_IMAGE_CONFIG="+string(b))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 77 {
		t.Skipf("this machine allows root no namespaces or mounts: %v\n%s", err, out)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

// container is the image that inImage runs.
type container struct {
	root   string
	config v1.Config
}

// inImage is the main function of the process in the namespaces. It returns the exit code: 77 if
// the namespaces cannot be used.
func inImage(root string) int {
	c := container{root: root}
	if err := json.Unmarshal([]byte(os.Getenv("VIGIL_IMAGE_CONFIG")), &c.config); err != nil {
		fmt.Println(err)
		return 1
	}
	if err := c.mount(); err != nil {
		fmt.Println(err)
		return 77
	}
	if err := c.use(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

func (c container) mount() error {
	data := filepath.Join(c.root, "var/lib/vigil")
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, step := range []func() error{
		func() error { return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Mount(c.root, c.root, "", unix.MS_BIND, "") },
		func() error {
			return unix.Mount("tmpfs", data, "tmpfs", 0,
				"mode=0700,uid=65532,gid=65532")
		},
		func() error {
			return unix.Mount("", c.root, "",
				unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
		},
	} {
		if err := step(); err != nil {
			return fmt.Errorf("prepare the root file system: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(c.root, "tmp/x"), nil,
		0o600); !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("the root file system can be written: %v", err)
	}
	return nil
}

// command runs a program of the image as a container does.
func (c container) command(args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path: args[0], Args: args, Env: c.config.Env, Dir: c.config.WorkingDir, Stdout: os.Stdout,
		Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Chroot: c.root,
			Credential: &syscall.Credential{Uid: imageUser, Gid: imageUser},
			Pdeathsig:  syscall.SIGKILL},
	}
}

func (c container) use() error {
	const vigilctl = "/usr/local/bin/vigilctl"
	version := c.command("/usr/local/bin/vigil", "--version")
	version.Stdout = nil
	out, err := version.Output()
	if err != nil || !strings.Contains(string(out), "Vigil Version: "+testVersion+"\n") {
		return fmt.Errorf("vigil --version: %v: %s", err, out)
	}
	// the second time after a restart
	for _, work := range [][]string{{"put", "greeting", "hello"}, {"get", "greeting"}} {
		server := c.command(c.config.Entrypoint...)
		if err := server.Start(); err != nil {
			return err
		}
		if err := c.awaitHealth(); err != nil {
			return err
		}
		cmd := c.command(append([]string{vigilctl, "--command-timeout=60s"}, work...)...)
		cmd.Stdout = nil
		answer, err := cmd.Output()
		if err != nil || work[0] == "get" && string(answer) != "greeting\nhello\n" {
			return fmt.Errorf("vigilctl %q: %v: %s", work, err, answer)
		}
		if err := server.Process.Signal(unix.SignalNum(c.config.StopSignal)); err != nil {
			return err
		}
		if err := server.Wait(); err != nil {
			return fmt.Errorf("stop of the server: %w", err)
		}
	}
	return nil
}

// awaitHealth runs the health check of the image until it succeeds.
func (c container) awaitHealth() error {
	var err error
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		check := c.command(c.config.Healthcheck.Test[1:]...)
		check.Stdout, check.Stderr = nil, nil
		if err = check.Run(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("the health check fails: %w", err)
}
