package screen

import (
	"bytes"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/mattn/go-runewidth"
)

var columns = []Column{{Title: "NAME", Least: 6}, {Title: "LAG", Right: true, Weight: 3},
	{Title: "OPTIONS", Weight: 1}, {Title: "STATE"}}

func TestTable(t *testing.T) {
	rows := [][]string{{"a long name", "7", "prev_kv", "live"}, {"b", "1234", "", "behind"}}
	for width, want := range map[int]string{
		0:  "NAME          LAG  OPTIONS  STATE\na long name     7  prev_kv  live\nb            1234           behind",
		80: "NAME          LAG  OPTIONS  STATE\na long name     7  prev_kv  live\nb            1234           behind",
		30: "NAME      LAG  OPTIONS  STATE\na long…     7  prev_kv  live\nb        1234           behind",
		25: "NAME          LAG  STATE\na long name     7  live\nb            1234  behind",
		20: "NAME     LAG  STATE\na lon…     7  live\nb       1234  behind",
		15: "NAME     STATE\na long…  live\nb        behind",
		5:  "NAME…\na lo…\nb   …",
	} {
		got := strings.Join(Table(width, columns, rows), "\n")
		if width > 0 {
			for _, l := range strings.Split(got, "\n") {
				if n := runewidth.StringWidth(l); n > width {
					t.Errorf("width %d: %q takes %d", width, l, n)
				}
			}
		}
		if want != "" && got != want {
			t.Errorf("width %d:\n%s\nwant\n%s", width, got, want)
		}
	}
}

func TestTableIsSafe(t *testing.T) {
	lines := Table(0, []Column{{Title: "KEY"}}, [][]string{{"\x1b[2J\u009b1m\xff\nx"}, {"日本"}})
	for _, l := range lines {
		if strings.ContainsAny(l, "\x1b\n\u009b") {
			t.Errorf("%q", l)
		}
	}
	if got := Cut("日本語", 5); got != "日本…" {
		t.Errorf("%q", got)
	}
}

func TestSafeText(t *testing.T) {
	for text, want := range map[string]string{
		"plain\n\ttext\n":       "plain\n\ttext\n",
		"日本\u200d":              "日本\u200d",
		"\x1b]0;title\a\x1b[2J": "\ufffd]0;title\ufffd\ufffd[2J",
		"a\rb\u009b1m\u202ec":   "a\ufffdb\ufffd1m\ufffdc",
		"\x9b1m\xff":            "\ufffd1m\ufffd",
	} {
		if got := string(SafeText([]byte(text))); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if got, want := Safe(text),
			strings.NewReplacer("\n", "\ufffd", "\t", "\ufffd").Replace(want); got != want {
			t.Errorf("%q in a cell: %q, want %q", text, got, want)
		}
	}
	var b bytes.Buffer
	if w := Guard(&b); w != &b {
		t.Error("what is no terminal is guarded")
	}
}

func TestScreen(t *testing.T) {
	var b bytes.Buffer
	s, err := Open(&b)
	if err == nil {
		err = s.Draw([]string{"one", "two"})
	}
	if err == nil {
		err = s.Close()
	}
	if want := "\x1b[?1049h\x1b[?25l\x1b[2J\x1b[Hone\x1b[K\r\ntwo\x1b[K\x1b[J\x1b[?25h\x1b[?1049l"; err != nil || b.String() != want {
		t.Errorf("%v %q", err, b.String())
	}
	// No terminal, no colours.
	if got := NewPaint(&b).In(Bad, "x"); got != "x" {
		t.Errorf("%q", got)
	}
	if got := (Paint{on: true}).In(Bad, "x"); got != "\x1b[31;1mx\x1b[0m" {
		t.Errorf("%q", got)
	}
}

// TestSizeOfWrapped: the size of a terminal is found below any number of writers.
func TestSizeOfWrapped(t *testing.T) {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	if _, _, ok := Size(wrapped{wrapped{tty}}); !ok {
		t.Error("a terminal below two writers is not found")
	}
}

type wrapped struct{ io.Writer }

func (w wrapped) Unwrap() io.Writer { return w.Writer }
