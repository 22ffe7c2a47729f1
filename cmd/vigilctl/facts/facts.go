// Package facts prints the results of commands that read files or objects: facts, and rows below a
// heading, in the formats of package show.
package facts

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"vigil/cmd/vigilctl/show"
)

// Format is the value of --write-out for a command that reads files. It allows some of the formats
// of package show.
type Format struct {
	show.Format
	allowed []show.Format
}

// Add declares --write-out; the first format is the default.
func Add(flags *pflag.FlagSet, usage string, allowed ...show.Format) *Format {
	f := &Format{allowed[0], allowed}
	flags.VarP(f, "write-out", "w", usage)
	return f
}

// AddFacts declares --write-out of a command that prints facts.
func AddFacts(flags *pflag.FlagSet) *Format {
	return Add(flags, "how to print: simple (a line, comma separated), table, json, yaml or fields",
		show.Simple, show.Table, show.JSON, show.YAML, show.Fields)
}

// String is a method of pflag.Value, as are Set and Type.
func (f *Format) String() string { return string(f.Format) }

func (f *Format) Set(s string) error {
	if !slices.Contains(f.allowed, show.Format(s)) {
		var names []string
		for _, a := range f.allowed {
			names = append(names, string(a))
		}
		last := len(names) - 1
		return fmt.Errorf("must be %s or %s", strings.Join(names[:last], ", "), names[last])
	}
	f.Format = show.Format(s)
	return nil
}

func (f *Format) Type() string { return "FORMAT" }

// Rows prints rows aligned under a heading, or as comma separated lines.
func (f *Format) Rows(w io.Writer, heading []string, rows [][]string) error {
	if f.Format == show.Simple {
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

// Fact is one result of a command: its name in fields, its heading in a table, its text for people
// and its value for programs.
type Fact struct {
	name, heading, text string
	value               any
}

// New returns a fact.
func New(name, heading, text string, value any) Fact { return Fact{name, heading, text, value} }

// Facts prints facts like etcdutl, and as JSON the value that contains them.
func (f *Format) Facts(w io.Writer, whole any, facts []Fact) error {
	heading, texts := make([]string, len(facts)), make([]string, len(facts))
	for i, x := range facts {
		heading[i], texts[i] = x.heading, x.text
	}
	switch f.Format {
	case show.JSON:
		return json.NewEncoder(w).Encode(whole)
	case show.YAML:
		b, err := json.Marshal(whole)
		if err == nil {
			b, err = show.ToYAML(b)
		}
		if err == nil {
			_, err = w.Write(b)
		}
		return err
	case show.Fields:
		for _, x := range facts {
			if _, err := fmt.Fprintf(w, "%q : %v\n", x.name, x.value); err != nil {
				return err
			}
		}
		return nil
	case show.Table:
		return show.WriteTable(w, heading, [][]string{texts})
	}
	_, err := fmt.Fprintln(w, strings.Join(texts, ", "))
	return err
}
