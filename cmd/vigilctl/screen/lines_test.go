package screen

import (
	"strings"
	"testing"
)

func TestFlow(t *testing.T) {
	if got := strings.Join(Flow(10, "one", "", "two", "three", "a very long piece"),
		"|"); got != "one  two|three|a very lo…" {
		t.Error(got)
	}
	if got := Flow(0, "one", "two"); len(got) != 1 {
		t.Error(got)
	}
}
