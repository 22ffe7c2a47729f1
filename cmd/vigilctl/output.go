package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"vigil/cmd/vigilctl/screen"
)

// format is how a command prints what it found.
type format string

const (
	formatTable  format = "table"
	formatSimple format = "simple"
	formatJSON   format = "json"
)

// String, Set and Type make a format a pflag.Value.
func (f *format) String() string { return string(*f) }

func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatSimple, formatJSON:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s", formatTable, formatSimple, formatJSON)
}

func (f *format) Type() string { return "FORMAT" }

// addTo adds -w, as etcd's tools have it.
func (f *format) addTo(flags *pflag.FlagSet) {
	*f = formatTable
	flags.VarP(f, "write-out", "w", "how to print: table, simple (a line each, comma separated) or json")
}

// rows prints a heading and rows under it, aligned for people or as plain lines.
func (f format) rows(w io.Writer, heading []string, rows [][]string) error {
	if f == formatSimple {
		for _, r := range rows {
			if _, err := fmt.Fprintln(w, strings.Join(r, ", ")); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, r := range append([][]string{heading}, rows...) {
		fmt.Fprintln(t, strings.Join(r, "\t"))
	}
	return t.Flush()
}

// writeJSON prints one value, indented.
func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// output is standard output. It remembers the first write that failed, so that no command reports success without its
// answer. It is safe for concurrent use as far as the writer below it is.
type output struct {
	to     io.Writer
	failed atomic.Pointer[error]
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err != nil {
		o.failed.CompareAndSwap(nil, &err)
	}
	return n, err
}

// Unwrap returns what is written to, for package screen and for the standard output of other commands.
func (o *output) Unwrap() io.Writer { return o.to }

// err returns why the output is not complete, nil if it is.
func (o *output) err() error {
	if p := o.failed.Load(); p != nil {
		return fmt.Errorf("standard output: %w", *p)
	}
	return nil
}

// isTerminal reports whether a person may be looking at what is written to w.
func isTerminal(w io.Writer) bool {
	_, _, ok := screen.Size(w)
	return ok
}

// size prints a number of bytes for people.
func size(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, u := float64(n)/(1<<10), 0
	for ; v >= 1<<10; u++ {
		v /= 1 << 10
	}
	return fmt.Sprintf("%.1f %ciB", v, units[u])
}
