package cluster

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"vigil/test/proc"
)

// files are the files below a directory.
func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestArchiveOfAnotherHistory: a member that was wiped and started with the same flags, and one
// whose disk was set back, find the archive of the history before under the same cluster id. They
// write nothing to it, whatever they commit and however often they start. The disk that has all of
// it goes on.
func TestArchiveOfAnotherHistory(t *testing.T) {
	archive, data, image := dir(t), dir(t), dir(t)
	port := proc.FreePort(t)
	begin := func(data string) *proc.Server {
		return proc.Start(t,
			proc.Config{Name: "m1", DataDir: data, PeerPort: port,
				Args: []string{"--archive=file://" + archive, "--archive-base-interval=1s",
					"--archive-interval=100ms"}})
	}
	put := func(s *proc.Server, n int) (revision int64) {
		c := s.Client()
		for i := range n {
			res, err := c.Put(proc.Context(t), fmt.Sprint("k", i%10), "v")
			if err != nil {
				t.Fatal(err)
			}
			revision = res.Header.Revision
		}
		return revision
	}
	await := func(s *proc.Server, what string, is func(archiveStatus) bool) {
		t.Helper()
		var st archiveStatus
		for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
			var ok bool
			if st, ok = readArchive(s.Addr()); ok && is(st) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("not %s: %+v", what, st)
			}
		}
	}
	archived := func(s *proc.Server, revision int64) {
		t.Helper()
		await(s, fmt.Sprintf("archived up to revision %d", revision),
			func(st archiveStatus) bool { return st.ArchivedRevision >= revision })
	}
	s := begin(data)
	archived(s, put(s, 30))
	s.Kill()
	if err := os.CopyFS(image, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	s = begin(data)
	archived(s, put(s, 30))
	s.Kill()
	before := files(t, archive)
	for what, data := range map[string]string{"wiped": dir(t), "set back": image} {
		for range 3 {
			s := begin(data)
			put(s, 50)
			await(s, "refused when it was "+what,
				func(st archiveStatus) bool { return st.State == "refused" })
			put(s, 50)
			s.Kill()
		}
		if after := files(t, archive); !slices.Equal(after, before) {
			t.Errorf("%s: %d files, and %d before", what, len(after), len(before))
		}
	}
	s = begin(data)
	archived(s, put(s, 10))
	s.Kill()
	res := proc.Run(t, time.Minute,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl),
			Args: []string{"archive", "verify", "file://" + archive}})
	if res.Code != 0 {
		t.Errorf("%s%s", res.Stdout, res.Stderr)
	}
}
