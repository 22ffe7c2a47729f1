package damage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"syscall"
	"testing"

	"vigil/internal/store/history"
)

// TestDamagePlaces: damage counts once, however often it is met, and the list of places is bounded.
func TestDamagePlaces(t *testing.T) {
	d := New(slog.New(slog.DiscardHandler))
	at := func(file string, offset int64) error {
		return fmt.Errorf("a read: %w", &history.CorruptError{File: file, Offset: offset})
	}
	// The scrubber names a batch, reads name records in it.
	batch := func(offset, length int64) error {
		return &history.CorruptError{File: "e", Offset: offset, Length: length}
	}
	disk := &fs.PathError{Op: "read", Path: "c", Err: syscall.EIO}
	for i, c := range []struct {
		err error
		new bool
	}{
		{at("a", 1<<20), true}, {at("a", 1<<20), false}, {at("a", 1<<20+88), false},
		{at("a", 1<<20-88), false},
		{at("a", 2<<20), true}, {at("b", 1<<20), true}, {disk, true},
		{fmt.Errorf("again: %w", disk), false},
		{batch(1<<20, 2<<20), true}, {at("e", 2<<20), false}, {at("e", 4<<20), true},
		{at("e", 9<<20), true}, {batch(8<<20, 2<<20), false}, {at("e", 10<<20-1), false},
		{errors.New("something else"), true}, {errors.New("something else"), false},
	} {
		if got := d.add(c.err); got != c.new {
			t.Errorf("%d: %v is new: %v", i, c.err, got)
		}
	}
	for i := range int64(2 * mostPlaces) {
		d.add(at("d", i*samePlace))
	}
	if n := d.Count(); n != mostPlaces {
		t.Errorf("%d places are kept", n)
	}
}
