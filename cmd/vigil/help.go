package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// usage writes the help text.
func usage(w io.Writer) {
	fmt.Fprint(w, `Vigil is a durable, watchable key-value store that speaks the etcd v3 API.

  vigil [flags]           run a member
  vigil config [flags]    print the effective configuration of these flags, the environment and the
                          configuration file, with the origin of each value; -w yaml and -w json
  vigil version           print versions
  vigil help [flag ...]   print this text, or what these flags do

Start a member with its data in ./default.etcd, serving clients on 127.0.0.1:2379:

  vigil

Try it from another terminal, with vigilctl or any other client of etcd:

  vigilctl put greeting hello
  vigilctl get greeting
  vigilctl watch greeting --rev=1

A browser on the same machine shows the console at http://localhost:2379/console/.

Each flag can also be set by an environment variable, such as ETCD_DATA_DIR for --data-dir, and in the
configuration file given by --config-file, such as data-dir: DIR. The command line overrides the environment,
and the environment overrides the file. If a flag is given twice, the last value is used. A boolean flag
without a value is true.
`)
	o := newOptions()
	o.config = o.config.WithDefaults()
	for _, sec := range o.sections {
		fmt.Fprintf(w, "\n%s:\n", sec.title)
		for _, f := range sec.flags {
			f.describe(w)
		}
	}
}

// describe writes the help of one flag.
func (o *option) describe(w io.Writer) {
	head := "  --" + o.name
	if o.value != "" {
		head += " " + o.value
	}
	if d := o.preset(); d != "" {
		head += " (default " + d + ")"
	}
	text := o.help
	if o.noEffect != "" {
		text = "accepted without effect: " + o.noEffect
	}
	fmt.Fprintf(w, "%s\n        %s\n", head, text)
}

// help writes the help of the named flags, or the whole text if there are no flags or only
// commands. The error names every unknown word.
func help(w io.Writer, words []string) error {
	o := newOptions()
	o.config = o.config.WithDefaults()
	var errs []error
	var named []*option
	for _, word := range words {
		name := strings.TrimLeft(word, "-")
		at := len(named)
		o.each(func(f *option) {
			if f.name == name {
				named = append(named, f)
			}
		})
		if at == len(named) && !slices.Contains(commands, word) {
			errs = append(errs, fmt.Errorf("there is no flag or command %q%s", word,
				suggestWord(word, o.flagNames())))
		}
	}
	switch {
	case len(errs) > 0:
		return fmt.Errorf("%w (%w)", errors.Join(errs...), errUsage)
	case len(named) == 0:
		usage(w)
	}
	for _, f := range named {
		f.describe(w)
	}
	return nil
}

// preset returns the default that --help shows.
func (o *option) preset() string {
	switch d := o.get(); {
	case o.shown != "":
		return o.shown
	case o.isBool && d == "false":
		return ""
	default:
		return d
	}
}
