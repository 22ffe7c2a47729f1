package cluster

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// damage replaces bytes by others of the same length in the unsealed history of a member that does
// not run, and makes every checksum right again: only other members can detect the change. The
// layout is that of docs/formats/history.md.
func damage(t testing.TB, dataDir, old, new string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dataDir, "history", "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(b, []byte(old)) {
			continue
		}
		if len(old) != len(new) || !alter(b, []byte(old), []byte(new)) {
			t.Fatalf("%s does not have the layout that is expected", name)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("%q is in none of %q", old, names)
}

func alter(b, old, new []byte) bool {
	const header, batch, record = 64, 48, 28
	table, le := crc32.MakeTable(crc32.Castagnoli), binary.LittleEndian
	seed, altered, previous := le.Uint32(b[60:]), false, uint32(0)
	for at := header; at+batch <= len(b) && string(b[at+4:at+8]) == "VgBa"; {
		size := int(le.Uint32(b[at+8:]))
		if size < batch || at+size > len(b) {
			return false
		}
		whole := b[at : at+size]
		for n, rec := le.Uint32(whole[16:]), whole[batch:]; n > 0; n-- {
			end := record + int(le.Uint32(rec[4:])&(1<<28-1))
			if i := bytes.Index(rec[record:end], old); i >= 0 {
				copy(rec[record+i:], new)
				le.PutUint32(rec, crc32.Checksum(rec[4:end], table))
				altered = true
			}
			rec = rec[end:]
		}
		if altered {
			if previous != 0 {
				le.PutUint32(whole[12:], previous)
			}
			previous = crc32.Update(seed, table, whole[4:])
			le.PutUint32(whole, previous)
		}
		at += size
	}
	return altered
}
