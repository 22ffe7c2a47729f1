package world

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestImage: processes begin where the initialization of the program has ended, each with memory
// and random numbers of its own.
func TestImage(t *testing.T) {
	for _, name := range []string{"testdata/tiny/main.go", "../guest/sys/sys.go"} {
		// so that go test knows that the result depends on it
		if _, err := os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "tiny.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-ldflags=-checklinkname=0", "-o",
		file, "./testdata/tiny")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	g, err := Load(context.Background(), file, "")
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close(context.Background())
	seen := map[string]bool{}
	for _, c := range []struct {
		guest *Guest
		want  string
	}{{g, "1 1 3145728 [] true"}, {g.With("7"), "1 1 3145728 [\"7\"] true"}} {
		w := New(c.guest, uint64(len(c.want)), nil)
		var lines []string
		w.Printed = func(_ *Machine, line []byte) {
			if text := string(line); !strings.HasPrefix(text, "random") {
				lines = append(lines, text)
			} else if seen[text] {
				t.Errorf("two processes draw the same random number: %s", text)
			} else {
				seen[text] = true
			}
		}
		w.Exited = func(m *Machine, err error) {
			if err != nil {
				t.Errorf("%s: %v", m.Name, err)
			}
		}
		for n := range 3 {
			w.Machine("m", netip.AddrFrom4([4]byte{10, 0, 0, byte(n)})).Start()
		}
		if err := w.Run(time.Minute, nil); err != nil && err != errIdle {
			t.Error(err)
		}
		if !slices.Equal(lines, []string{c.want, c.want, c.want}) {
			t.Errorf("the processes print %q, want %q each", lines, c.want)
		}
		w.Close()
	}
}

// TestParseProgram: what is no program, or is cut off, is rejected.
func TestParseProgram(t *testing.T) {
	head := []byte("\x00asm\x01\x00\x00\x00")
	global := []byte{sectionGlobal, 6, 1, 0x7f, 1, 0x41, 0, 0x0b}
	data := []byte{sectionData, 9, 1, 0, 0x41, 0x80, 0x01, 0x0b, 2, 'a', 'b'}
	whole := slices.Concat(head, global, []byte{sectionExport, 1, 0}, data)
	p, err := parseProgram(whole)
	if err != nil || p.globals != 1 || len(p.data) != 1 || p.data[0].at != 128 ||
		string(p.data[0].bytes) != "ab" {
		t.Errorf("%+v, %v", p, err)
	}
	want := slices.Concat(head, global, []byte{sectionExport, 12, 1, 8},
		[]byte("global 0"), []byte{3, 0})
	if err == nil && !slices.Equal(p.code, want) {
		t.Errorf("the code is %q, want %q", p.code, want)
	}
	for n := range whole {
		if _, err := parseProgram(whole[:n]); err == nil {
			t.Errorf("the first %d bytes are a program", n)
		}
	}
}
