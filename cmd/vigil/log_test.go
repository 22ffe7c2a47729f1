package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestLibraryLines: what libraries log is bounded though each line begins with the time and ends
// with what a client has sent.
func TestLibraryLines(t *testing.T) {
	file := t.TempDir() + "/log"
	out, log, err := openLog(&logging{outputs: []string{file}, level: "info",
		rotation: defaultRotation}, nil)
	if err != nil {
		t.Fatal(err)
	}
	lines := libraryLines{log}
	for i := range 1000 {
		lines.Write(fmt.Appendf(nil,
			"2026/11/22 10:%02d:%02d ERROR: Failed to decode request: text %d: of a client\n",
			i/60, i%60, i))
	}
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "Failed to decode"); n < 50 || n > 200 {
		t.Errorf("%d lines", n)
	}
	if !strings.Contains(string(b), `"error":"Failed to decode request: text 7: of a client"`) {
		t.Errorf("%.500s", b)
	}
}

// An error keeps its readable characters, and a terminal acts on none of it.
func TestOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"one\ntwo": "one; two", `--name "ü" \ 日本`: `--name "ü" \ 日本`, "a\x1b[2Jb": `a\x1b[2Jb`,
		"\x9b2J\xff": `\x9b2J\xff`, "\u009b\r": `\u009b\r`, "\u202e\t": `\u202e\t`,
	} {
		if got := oneLine(errors.New(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// What others have given reaches a terminal without characters or bytes that it acts on.
func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"plain ü": "plain ü", "a\x1b[2Jb": `"a\x1b[2Jb"`, "\x9b2J": `"\x9b2J"`, "\xff": `"\xff"`,
		"two\nlines": `"two\nlines"`, "\u202e": `"\u202e"`,
	} {
		if got := printable(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}
