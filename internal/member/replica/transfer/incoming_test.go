package transfer

import (
	"fmt"
	"testing"

	"vigil/internal/store/history"
	"vigil/internal/vfs/memfs"
)

// A state may have more meta records than fit into a batch, of a snapshot or to be deleted for it.
func TestMetaRecordsInManyBatches(t *testing.T) {
	log, err := history.Create(history.Options{FS: memfs.New(), Dir: "/history"},
		history.Applied{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	in := &incoming{log: log}
	defer in.abandon()
	const number, size = 5000, 1000
	for _, prefix := range []string{"a", "b"} {
		in.meta = nil
		for i := range number {
			in.meta = append(in.meta,
				history.Meta{Bucket: 1, Key: fmt.Appendf(nil, "%s%d", prefix, i),
					Value: make([]byte, size)})
		}
		if err := in.appendMeta(); err != nil {
			t.Fatal(err)
		}
		kept := 0
		for _, m := range log.CommittedMeta() {
			if string(m.Key[:1]) == prefix {
				kept++
			}
		}
		if least := number - 2*batchBytes/size; kept < least {
			t.Errorf("%s: one batch has %d of %d records", prefix, number-kept, number)
		}
		if err := log.Commit(history.Applied{Index: 1, Term: 1}); err != nil {
			t.Fatal(err)
		}
		in.at = history.Applied{Index: 1, Term: 1}
		if n := len(log.CommittedMeta()); n != number {
			t.Errorf("%s: %d records", prefix, n)
		}
	}
}
