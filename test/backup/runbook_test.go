package backup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"vigil/test/proc"
)

// TestRunbook runs the blocks of commands of docs/operations/backup.md as they are there, but for
// the ports.
func TestRunbook(t *testing.T) {
	page := must(os.ReadFile("../../docs/operations/backup.md"))(t)
	vigil := proc.Start(t, proc.Config{Memory: true})
	c := client(t, vigil, false)
	for i := range 20 {
		must(c.Put(t.Context(), "k", fmt.Sprint(i)))(t)
	}
	want := dump(t, vigil, false, 1)

	dir, bin := proc.Dir(t), t.TempDir()
	for _, p := range []proc.Program{proc.Vigil, proc.Vigilctl} {
		if err := os.Symlink(proc.Path(t, p), filepath.Join(bin, string(p))); err != nil {
			t.Fatal(err)
		}
	}
	clientPort, peerPort := proc.FreePort(t), proc.FreePort(t)
	ran, started := 0, false
	for _, block := range regexp.MustCompile("(?s)```sh( start)?\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		addr := vigil.Addr()
		if strings.Contains(block[2], "snapshot restore") || block[1] != "" {
			addr = fmt.Sprintf("127.0.0.1:%d", clientPort)
		}
		script := strings.ReplaceAll(block[2], "127.0.0.1:2379", addr)
		script = strings.ReplaceAll(script, "127.0.0.1:2380", fmt.Sprintf("127.0.0.1:%d", peerPort))
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
		if block[1] == "" {
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s\n%s%v", script, out, err)
			}
			ran++
			continue
		}
		cmd.Args[2] = "exec " + script
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		restored := proc.New(t, proc.Config{ClientPort: clientPort, PeerPort: peerPort})
		equal(t, "what was restored", dump(t, restored, false, 1), want)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", script, err)
		}
		started = true
	}
	if ran < 3 || !started {
		t.Errorf("%d blocks were run, started %v", ran, started)
	}
}
