package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"vigil/internal/kv"
	"vigil/internal/offline/snapshot"
	"vigil/internal/vfs/memfs"
)

// readBackup reads a backup with the reader of files.
func readBackup(t *testing.T, b *Backup) (state snapshot.Contents, values map[string]string) {
	t.Helper()
	var out bytes.Buffer
	if err := b.Write(&out); err != nil {
		t.Fatal(err)
	}
	if int64(out.Len()) != b.Size() {
		t.Errorf("%d bytes were written and %d announced", out.Len(), b.Size())
	}
	f, err := snapshot.Open(bytes.NewReader(out.Bytes()), int64(out.Len()),
		snapshot.Options{SkipHash: true})
	if err != nil {
		t.Fatal(err)
	}
	values = map[string]string{}
	if err := f.Records(func(rev kv.Rev, tombstone bool, data []byte) error {
		values[fmt.Sprint(rev)] = string(data)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return f.Contents, values
}

// TestBackup: a backup is of the moment of the call, whatever is written and compacted before it is
// taken.
func TestBackup(t *testing.T) {
	r := start(t, tinyConfig(memfs.New()))
	last := int64(0)
	for i := range 200 {
		last = mustPut(t, r, fmt.Sprint("key", i%10), fmt.Sprint(i))
	}
	b, err := r.Backup(t.Context(), "3.7.0", "3.7.0")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	at := b.Revision()
	if at != last {
		t.Errorf("revision %d, want %d", at, last)
	}
	for i := range 400 {
		last = mustPut(t, r, fmt.Sprint("key", i%10), fmt.Sprint(i))
	}
	if _, err := r.Compact(t.Context(),
		&kv.CompactRequest{Revision: last, Physical: true}); err != nil {
		t.Fatal(err)
	}
	st, values := readBackup(t, b)
	if len(values) != 200 || st.Compact != -1 || st.Index == 0 || st.StorageVersion != "3.7.0" {
		t.Errorf("%d records, %+v", len(values), st)
	}
	b2, err := r.Backup(t.Context(), "3.7.0", "3.7.0")
	if err != nil {
		t.Fatal(err)
	}
	defer b2.Close()
	if st, values := readBackup(t, b2); len(values) != 10 || st.Compact != last {
		t.Errorf("compacted: %d records, %+v", len(values), st)
	}
}

// TestBackupBounds: there are so many at once and no more; one that is closed makes room; nothing
// begins in a member that has stopped, and what has begun before can be finished.
func TestBackupBounds(t *testing.T) {
	r := start(t, tinyConfig(memfs.New()))
	mustPut(t, r, "a", "1")
	var list []*Backup
	for range maxBackups {
		b, err := r.Backup(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, b)
	}
	if _, err := r.Backup(t.Context(), "", ""); !errors.Is(err, kv.ErrTooManyRequests) {
		t.Errorf("one too many: %v", err)
	}
	list[0].Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Backup(ctx, "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	b, err := r.Backup(t.Context(), "", "")
	if err != nil {
		t.Fatalf("after one was closed: %v", err)
	}
	list[0] = b
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, b := range list {
		if err := b.Write(io.Discard); err != nil {
			t.Error(err)
		}
		b.Close()
	}
	if _, err := r.Backup(t.Context(), "", ""); !errors.Is(err, kv.ErrStopped) {
		t.Errorf("after the end: %v", err)
	}
}

// Users and roles may have the longest names that there are, and the member can still be backed up;
// longer names are refused without a trace.
func TestBackupOfLongNames(t *testing.T) {
	r := start(t, config(memfs.New()))
	name := func(i, n int) string { return strings.Repeat("n", n-1) + string(rune('a'+i)) }
	for i := range 3 {
		for _, n := range []int{2025, kv.MaxNameBytes} {
			changeAuth(t, r, t.Context(), kv.AuthRequest{Op: kv.RoleAdd, Role: name(i, n)})
			changeAuth(t, r, t.Context(),
				kv.AuthRequest{Op: kv.UserAdd, User: name(i, n), NoPassword: true})
		}
	}
	for _, req := range []kv.AuthRequest{{Op: kv.RoleAdd, Role: name(0, kv.MaxNameBytes+1)},
		{Op: kv.UserAdd, User: name(0, kv.MaxNameBytes+1)}} {
		if _, err := r.Access.ChangeAuth(t.Context(), &req); !errors.Is(err, kv.ErrNameTooLong) {
			t.Errorf("a name of %d bytes: %v", kv.MaxNameBytes+1, err)
		}
	}
	b, err := r.Backup(t.Context(), "3.7.0", "3.7.0")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if state, _ := readBackup(t, b); len(state.Auth.Users()) != 6 || len(state.Auth.Roles()) != 6 ||
		b.Size() > 1<<20 {
		t.Errorf("%d users and %d roles in %d bytes", len(state.Auth.Users()),
			len(state.Auth.Roles()), b.Size())
	}
}

// TestBackupHasNoAlarms: a backup leaves out the alarms of the members, so that a cluster of etcd
// that is restored from it accepts writes.
func TestBackupHasNoAlarms(t *testing.T) {
	r := start(t, tinyConfig(memfs.New()))
	mustPut(t, r, "a", "b")
	for _, typ := range []kv.AlarmType{kv.AlarmNoSpace, kv.AlarmCorrupt} {
		if _, err := r.Alarms.ChangeAlarm(t.Context(),
			kv.AlarmChange{Alarm: kv.Alarm{MemberID: 77, Type: typ}}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := r.Backup(t.Context(), "3.7.0", "3.7.0")
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if st, values := readBackup(t, b); len(st.Alarms) > 0 || len(values) != 1 {
		t.Errorf("%d records and the alarms %+v", len(values), st.Alarms)
	}
}
