package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// backupFormat is how the commands about backups print what they found: as etcdutl does.
type backupFormat string

const formatFields format = "fields"

// String, Set and Type make it a pflag.Value.
func (f *backupFormat) String() string { return string(*f) }

func (f *backupFormat) Set(s string) error {
	switch format(s) {
	case formatSimple, formatTable, formatJSON, formatFields:
		*f = backupFormat(s)
		return nil
	}
	return fmt.Errorf("must be %s, %s, %s or %s", formatSimple, formatTable, formatJSON, formatFields)
}

func (f *backupFormat) Type() string { return "FORMAT" }

func (f *backupFormat) addTo(flags *pflag.FlagSet) {
	*f = backupFormat(formatSimple)
	flags.VarP(f, "write-out", "w", "how to print: simple (a line, comma separated), table, json or fields")
}

// field is a fact: its name in fields, its heading in a table, and its value for people and for programs.
type field struct {
	name, heading, text string
	value               any
}

// print prints facts, or for programs the value that they are of.
func (f backupFormat) print(w io.Writer, whole any, facts []field) error {
	switch format(f) {
	case formatJSON:
		b, err := json.Marshal(whole)
		if err == nil {
			_, err = fmt.Fprintf(w, "%s\n", b)
		}
		return err
	case formatFields:
		for _, x := range facts {
			if _, err := fmt.Fprintf(w, "%q : %v\n", x.name, x.value); err != nil {
				return err
			}
		}
		return nil
	case formatTable:
		return printTable(w, facts)
	}
	list := make([]string, len(facts))
	for i, x := range facts {
		list[i] = x.text
	}
	_, err := fmt.Fprintln(w, strings.Join(list, ", "))
	return err
}

// printTable draws one row under its headings.
func printTable(w io.Writer, facts []field) error {
	var top, head, mid, row, end strings.Builder
	for i, x := range facts {
		heading := strings.ToUpper(x.heading)
		width := max(utf8.RuneCountInString(heading), utf8.RuneCountInString(x.text))
		line := strings.Repeat("─", width+2)
		for _, l := range []struct {
			b           *strings.Builder
			first, next string
			text        string
		}{
			{&top, "┌", "┬", line},
			{&head, "│", "│", " " + centered(heading, width) + " "},
			{&mid, "├", "┼", line},
			{&row, "│", "│", fmt.Sprintf(" %*s ", width, x.text)},
			{&end, "└", "┴", line},
		} {
			if i == 0 {
				l.b.WriteString(l.first)
			} else {
				l.b.WriteString(l.next)
			}
			l.b.WriteString(l.text)
		}
	}
	_, err := fmt.Fprintf(w, "%s┐\n%s│\n%s┤\n%s│\n%s┘\n", &top, &head, &mid, &row, &end)
	return err
}

func centered(s string, width int) string {
	free := width - utf8.RuneCountInString(s)
	return strings.Repeat(" ", free/2) + s + strings.Repeat(" ", free-free/2)
}
