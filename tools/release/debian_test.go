package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// debian is a booted Debian tree.
type debian struct {
	t      *testing.T
	leader string // its process 1, as this machine numbers it
}

// bootDebian boots a Debian tree with systemd. VIGIL_DEBIAN_TREE is a tree that debootstrap made,
// with systemd, dbus, curl and openssl; it is copied. A new one is downloaded otherwise.
func bootDebian(t *testing.T) *debian {
	t.Helper()
	inFull(t)
	if os.Getuid() != 0 {
		t.Skip("needs root to boot a Debian")
	}
	for _, program := range []string{"systemd-nspawn", "nsenter"} {
		need(t, program)
	}
	tree := filepath.Join(t.TempDir(), "tree")
	if made := os.Getenv("VIGIL_DEBIAN_TREE"); made != "" {
		runProgram(t, "cp", "-a", made, tree)
	} else {
		need(t, "debootstrap")
		runProgram(t, "debootstrap", "--variant=minbase",
			"--include=systemd,systemd-sysv,dbus,curl,openssl", "bookworm", tree)
	}
	_, out := sharedRelease(t)
	runProgram(t, "cp", "-r", out, filepath.Join(tree, "srv/release"))
	newer := *built.release
	newer.version = "1.2.3"
	if err := os.Mkdir(filepath.Join(tree, "srv/newer"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := newer.pack(filepath.Join(t.TempDir(), "stage"),
		filepath.Join(tree, "srv/newer")); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(t.TempDir(), "boot.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("systemd-nspawn", "--quiet", "--directory="+tree, "--boot",
		"--private-network", "--register=no", "--keep-unit",
		fmt.Sprintf("--machine=vigil-%d", os.Getpid()))
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := &debian{t: t}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Log(err)
		}
		time.AfterFunc(2*time.Minute, func() { cmd.Process.Kill() })
		cmd.Wait()
	})
	await(t, "systemd runs in the tree", func() bool {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", cmd.Process.Pid))
		if err != nil || len(strings.Fields(string(children))) == 0 {
			return false
		}
		d.leader = strings.Fields(string(children))[0]
		state, _ := d.try("systemctl is-system-running")
		return strings.HasPrefix(state, "running") || strings.HasPrefix(state, "degraded")
	})
	return d
}

// await waits for a condition.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if done() {
			return
		}
	}
	t.Fatalf("three minutes passed, and not yet: %s", what)
}

func (d *debian) try(script string) (string, error) {
	cmd := exec.Command("nsenter", "--target", d.leader, "--mount", "--uts", "--ipc", "--net",
		"--pid", "--cgroup", "--", "/bin/sh", "-ec", script)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"DEBIAN_FRONTEND=noninteractive", "LC_ALL=C"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// sh runs a script in the tree, which must succeed.
func (d *debian) sh(script string) string {
	d.t.Helper()
	out, err := d.try(script)
	if err != nil {
		journal, _ := d.try("journalctl --no-pager -n 30 -u vigil")
		d.t.Fatalf("%s: %v\n%s\n%s", script, err, out, journal)
	}
	return strings.TrimSpace(out)
}

// expect runs a script, whose output must be want.
func (d *debian) expect(script, want string) {
	d.t.Helper()
	if got := d.sh(script); got != want {
		d.t.Errorf("%s: %q, want %q", script, got, want)
	}
}

// TestDebian follows the life of a package: installation, settings, start, crash, upgrade, removal,
// purge.
func TestDebian(t *testing.T) {
	d := bootDebian(t)
	get := "vigilctl --command-timeout=60s get greeting --print-value-only"

	d.sh("dpkg -i /srv/release/vigil_*.deb")
	d.expect("id -un vigil; stat -c '%U %a' /var/lib/vigil", "vigil\nvigil 700")
	d.expect("systemctl is-active vigil || true; systemctl is-enabled vigil || true",
		"inactive\ndisabled")
	d.expect("vigilctl version | grep vigilctl", "vigilctl version: "+testVersion)
	d.sh("dpkg --verify vigil")

	d.sh("echo 'log-level: warn' >> /etc/vigil/vigil.yaml; systemctl enable --now vigil 2>&1")
	d.sh("vigilctl put greeting hello")
	pid := d.sh("systemctl show -P MainPID vigil")
	d.expect("stat -c %U /proc/"+pid, "vigil")

	d.sh("kill -9 " + pid)
	await(t, "systemd starts the member again", func() bool {
		out, err := d.try("systemctl is-active vigil && systemctl show -P MainPID vigil")
		return err == nil && !strings.Contains(out, pid)
	})
	d.expect(get, "hello")

	pid = d.sh("systemctl show -P MainPID vigil")
	d.sh("dpkg -i /srv/newer/vigil_*.deb")
	d.expect("dpkg-query -W -f '${Version}' vigil", "1.2.3")
	d.expect("systemctl is-active vigil; systemctl is-enabled vigil; tail -1 /etc/vigil/vigil.yaml",
		"active\nenabled\nlog-level: warn")
	if d.sh("systemctl show -P MainPID vigil") == pid {
		t.Error("the upgrade did not restart the member")
	}
	d.expect(get, "hello")

	d.sh("systemctl stop vigil; dpkg -i /srv/release/vigil_*.deb")
	// an upgrade does not start what an operator stopped
	d.expect("systemctl is-active vigil || true", "inactive")
	d.sh("systemctl start vigil")

	d.sh("dpkg -r vigil")
	d.expect("systemctl is-active vigil || true; test ! -e /usr/bin/vigil; ls /etc/vigil /var/lib/vigil", "inactive\n/etc/vigil:\nvigil.yaml\n\n/var/lib/vigil:\ndefault")
	if out := d.sh("dpkg -P vigil 2>&1"); !strings.Contains(out,
		"the data of members are kept in /var/lib/vigil") {
		t.Error(out)
	}
	d.expect("test ! -e /etc/vigil; ls /var/lib/vigil; find /etc/systemd -name 'vigil*'", "default")

	// The program for the storage of clouds has a package of its own, of the same version.
	if out, err := d.try("dpkg -i /srv/release/vigil-bucket_*.deb 2>&1"); err == nil {
		t.Errorf("vigil-bucket is installed without vigil: %s", out)
	}
	d.sh("dpkg -i /srv/release/vigil_*.deb /srv/release/vigil-bucket_*.deb; dpkg --verify vigil-bucket")
	d.expect("vigil-bucket --version", "vigil-bucket "+testVersion)
	d.sh("dpkg -i /srv/newer/vigil_*.deb /srv/newer/vigil-bucket_*.deb")
	d.expect("dpkg-query -W -f '${Version}' vigil-bucket", "1.2.3")
	d.sh("dpkg -P vigil-bucket; test ! -e /usr/bin/vigil-bucket; dpkg -P vigil")

	// A mistake in the settings: the unit does not start it again and again.
	d.sh("dpkg -i /srv/newer/vigil_*.deb")
	d.expect(get+" 2>/dev/null || systemctl start vigil && "+get, "hello")
	d.sh("systemctl stop vigil; echo 'lisen: x' >> /etc/vigil/vigil.yaml; ! systemctl start vigil 2>/dev/null")
	d.expect("systemctl show -P NRestarts -P ExecMainStatus -P ActiveState vigil | sort",
		"0\n2\nfailed")
}
