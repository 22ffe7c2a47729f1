package complete

import (
	"slices"
	"testing"
)

// TestNames: a name that a shell cannot complete is left out, instead of another one that looks like it.
func TestNames(t *testing.T) {
	names := []string{"a", "ü/", "a b", "a\tb\x1b[2J", "a\xff", "a\x1b[2J", "a\u202e", "a\u009b", "", "\ufffd"}
	if got, want := complete(names), []string{"a", "ü/", "", "\ufffd"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
