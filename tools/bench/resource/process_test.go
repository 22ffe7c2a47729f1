package resource

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestCPUOfThisProcess(t *testing.T) {
	before, err := ReadCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	own := OwnCPU()
	for OwnCPU()-own < 300*time.Millisecond {
	}
	after, err := ReadCPU(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	used := OwnCPU() - own
	total, user, system := after.Since(before)
	if d := total - used; d < -50*time.Millisecond || d > 50*time.Millisecond {
		t.Fatalf("used %v, accounted %v (user %v, system %v)", used, total, user, system)
	}
	if user+system < used-50*time.Millisecond {
		t.Fatalf("used %v, user %v and system %v", used, user, system)
	}
	// A thread that has gone leaves the ticks as the only truth.
	after.threads = map[string]int64{"new": 5}
	if got, _, _ := after.Since(before); got != user+system {
		t.Fatalf("got %v, want %v", got, user+system)
	}
	if _, err := ReadCPU(1 << 30); err == nil {
		t.Fatal("a process that is not there has a processor time")
	}
}

func TestMemoryOfThisProcess(t *testing.T) {
	before, err := ReadMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	after, err := ReadMemory(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if grown := after.Anon - before.Anon; grown < 60<<20 {
		t.Fatalf("64 MiB more are %d bytes more", grown)
	}
	if after.Total < after.Anon || after.Peak < after.Total {
		t.Fatalf("%+v", after)
	}
	b[0]++
}

func TestDir(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	n, err := DirBytes(dir)
	if err != nil || n < 1<<20 || n > 1<<20+64<<10 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	p, err := StartDiskProbe(dir, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	h, err := p.Stop()
	if err != nil || h.Count() == 0 {
		t.Fatalf("%d probes, %v", h.Count(), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "disk-probe")); !os.IsNotExist(err) {
		t.Fatal("the probe left its file")
	}
}

func TestBusy(t *testing.T) {
	d, err := busy("cpu  100 20 30 99999 88888 4 5 6 7000 8000")
	if err != nil || d != 1650*time.Millisecond {
		t.Fatalf("%v %v", d, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"} {
		if _, err := busy(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if d, err := Busy(); err != nil || d <= 0 {
		t.Fatalf("%v %v", d, err)
	}
}
