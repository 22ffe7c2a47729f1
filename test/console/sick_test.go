package console

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"vigil/test/proc"
)

// sick starts three members, of which m3 has its data in a directory, and makes them sick. It opens
// the overview of m1 until it shows texts, and takes a picture.
func sick(t *testing.T, name, dir string, cause func(members []*proc.Server), args []string,
	texts ...string) {
	t.Helper()
	var names []string
	ports := make([]int, 3)
	for i := range ports {
		ports[i] = proc.FreePort(t)
		names = append(names, fmt.Sprintf("m%d=http://127.0.0.1:%d", i+1, ports[i]))
	}
	var members []*proc.Server
	for i := range ports {
		c := proc.Config{Program: proc.Vigil, Name: fmt.Sprintf("m%d", i+1), Memory: true,
			PeerPort: ports[i], InitialCluster: strings.Join(names, ","), Args: args}
		if i == 2 && dir != "" {
			c.DataDir = filepath.Join(dir, "data")
		}
		m := proc.New(t, c)
		m.Launch()
		members = append(members, m)
	}
	for _, m := range members {
		m.Ready()
	}
	cause(members)
	b := newBrowser(t, "http://"+members[0].Addr())
	b.open("overview")
	b.shows(texts...)
	b.accessible(name)
	b.screenshot("sick-" + name)
	b.check()
}

// TestSickOverview: the overview names what is wrong with a member, with the next step. test/sick
// has the other views, and more sicknesses.
func TestSickOverview(t *testing.T) {
	chromium(t)
	t.Run("damage", func(t *testing.T) {
		t.Parallel()
		sick(t, "damage", "", func(members []*proc.Server) {
			c, value := connect(t, members[0], ""), strings.Repeat("v", 1<<20)
			for n := range 12 {
				put(t, c, fmt.Sprintf("large/%03d", n), value)
			}
			var sealed []string
			for end := time.Now().Add(patience); len(sealed) == 0; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("no sealed segment")
				}
				sealed, _ = filepath.Glob(filepath.Join(members[2].DataDir(), "history", "*.seg"))
			}
			f, err := os.OpenFile(slices.Min(sealed), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if _, err := f.WriteAt([]byte{'w'}, 1<<19); err != nil {
				t.Fatal(err)
			}
		}, []string{"--scrub-pause=200ms", "--scrub-bytes-per-second=1000000000"},
			"m3: alarm CORRUPT", "m3: damaged data were found at one place")
	})

	t.Run("full", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short")
		}
		t.Parallel()
		dir := t.TempDir()
		if err := unix.Mount("vigil-test", dir, "tmpfs", 0,
			fmt.Sprint("size=", 160<<20)); err != nil {
			if os.Getuid() == 0 {
				t.Fatal(err)
			}
			t.Skipf("a small file system needs root: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		sick(t, "full", dir, func(members []*proc.Server) {
			f, err := os.Create(filepath.Join(dir, "foreign"))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for piece := 1 << 20; piece >= 4096; {
				if _, err := f.Write(make([]byte, piece)); err != nil {
					piece /= 4
				}
			}
			c, value := connect(t, members[0], ""), strings.Repeat("v", 1<<20)
			for n := range 150 {
				put(t, c, fmt.Sprintf("large/%03d", n), value)
			}
		}, nil, "m3: its disk is full", "wait")
	})

	t.Run("restored", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short")
		}
		t.Parallel()
		sick(t, "restored", "", func(members []*proc.Server) {
			m, backup := members[2], filepath.Join(t.TempDir(), "backup.db")
			ctl := func(args ...string) {
				t.Helper()
				if r := proc.Run(t, patience,
					proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args}); r.Code != 0 {
					t.Fatal(r.Stderr)
				}
			}
			ctl("snapshot", "save", backup, "--endpoints="+members[0].Addr())
			m.Kill()
			if err := os.RemoveAll(m.DataDir()); err != nil {
				t.Fatal(err)
			}
			var list []string
			for i, o := range members {
				list = append(list, fmt.Sprintf("m%d=http://%s", i+1, o.PeerAddr()))
			}
			ctl("snapshot", "restore", backup, "--data-dir="+m.DataDir(), "--name=m3",
				"--initial-cluster="+strings.Join(list, ","),
				"--initial-advertise-peer-urls=http://"+m.PeerAddr(),
				"--initial-cluster-token=restored")
			m.Launch()
		}, nil, "m3: m1, m2 refuse it", "another cluster")
	})
}
