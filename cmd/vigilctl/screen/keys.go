package screen

import (
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Key is a key that was pressed: a letter, or one of the constants below.
type Key string

// Keys without a letter.
const (
	Up    Key = "up"
	Down  Key = "down"
	Enter Key = "enter"
	Back  Key = "back" // Escape or Backspace
	Break Key = "break"
)

// sequences are the bytes that terminals send for keys.
var sequences = []struct {
	text string
	key  Key
}{
	{"\x1b[A", Up}, {"\x1bOA", Up}, {"\x1b[B", Down}, {"\x1bOB", Down}, {"\r", Enter},
	{"\n", Enter}, {"\x7f", Back}, {"\b", Back}, {"\x03", Break},
	{"\x1b", Back}, // after the sequences that start with it
}

// ReadKeys switches the terminal r to send each key at once, and returns the keys. restore switches
// it back. ok is false if r is not a terminal.
func ReadKeys(r io.Reader) (keys <-chan Key, restore func() error, ok bool) {
	f, isFile := r.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) {
		return nil, nil, false
	}
	before, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, nil, false
	}
	list := make(chan Key, 16)
	go func() {
		b := make([]byte, 64)
		for {
			n, err := f.Read(b)
			for _, k := range parseKeys(string(b[:n])) {
				list <- k
			}
			if err != nil {
				return
			}
		}
	}()
	return list, func() error { return term.Restore(int(f.Fd()), before) }, true
}

// parseKeys returns the keys in bytes from a terminal. It skips unknown sequences.
func parseKeys(s string) (keys []Key) {
next:
	for s != "" {
		for _, x := range sequences {
			rest, ok := strings.CutPrefix(s, x.text)
			if !ok {
				continue
			}
			if x.text == "\x1b" && rest != "" { // another sequence
				return keys
			}
			keys, s = append(keys, x.key), rest
			continue next
		}
		if s[0] >= ' ' && s[0] < 0x7f {
			keys = append(keys, Key(s[:1]))
		}
		s = s[1:]
	}
	return keys
}
