package planted

import "testing"

// TestApply: the mistakes fit the code.
func TestApply(t *testing.T) {
	for _, m := range All {
		if _, err := m.Apply("../.."); err != nil {
			t.Error(err)
		}
	}
}
