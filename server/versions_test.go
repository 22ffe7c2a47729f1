package server

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOtherVersions starts a member on the directory of one that was killed, after the version in
// the header of one file was changed to one that no program knows yet, or none knows any more. It
// is refused by a line with the file and both versions, and not a byte is changed: not even what
// recovery would cut or remove.
func TestOtherVersions(t *testing.T) {
	const stored = "testdata/datadir-v1/" + goldenKilled
	castagnoli := crc32.MakeTable(crc32.Castagnoli)
	files, err := filepath.Glob(stored + "/*/*")
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, ".tmp") {
			continue
		}
		for _, version := range []uint32{0, 99} {
			binary.LittleEndian.PutUint32(b[8:], version)
			switch string(b[:8]) {
			case "VIGILHST":
				binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
			case "VIGILWAL":
				var own uint64
				fmt.Sscanf(filepath.Base(name), "%16x", &own)
				if binary.LittleEndian.Uint64(b[16:]) != own {
					continue // a spare, whose header means nothing
				}
				sum := crc32.Checksum(b[:12], castagnoli)
				binary.LittleEndian.PutUint32(b[12:], crc32.Update(sum, castagnoli, b[16:4096]))
			default:
				continue
			}
			tried++
			dir := filepath.Join(t.TempDir(), "m.etcd")
			if err := os.CopyFS(dir, os.DirFS(stored)); err != nil {
				t.Fatal(err)
			}
			rel, _ := filepath.Rel(stored, name)
			if err := os.WriteFile(filepath.Join(dir, rel), b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "LOCK"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			before := contents(t, dir)
			m, err := Start(Config{DataDir: dir, ListenClientURLs: []string{"http://127.0.0.1:0"},
				ListenPeerURLs:      []string{"http://127.0.0.1:0"},
				AdvertiseClientURLs: []string{DefaultClientURL},
				Logger:              slog.New(slog.DiscardHandler)})
			if err == nil {
				stop(t, m)
				t.Errorf("%s in version %d: the member started", rel, version)
				continue
			}
			text := err.Error()
			if !strings.Contains(text, "unknown format version") ||
				!strings.Contains(text, fmt.Sprintf("is in version %d, ", version)) ||
				!strings.Contains(text, "this program reads") ||
				!strings.Contains(text, filepath.Base(name)) || strings.Contains(text, "\n") {
				t.Errorf("%s in version %d: %v", rel, version, err)
			}
			if contents(t, dir) != before {
				t.Errorf("%s in version %d: %v, and the directory was changed", rel, version, err)
			}
		}
	}
	if tried < 12 {
		t.Errorf("only %d files were tried", tried)
	}
}

// contents describes all files below a directory.
func contents(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		c, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s %d %x\n", path, len(c), crc32.ChecksumIEEE(c))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
