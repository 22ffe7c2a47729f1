package main

import (
	"fmt"
	"io"
)

// usage writes the help text.
func usage(w io.Writer) {
	fmt.Fprint(w, `Vigil is a durable, watchable key-value store that speaks the etcd v3 API.

  vigil [flags]           run a member
  vigil config [flags]    print the effective configuration of these flags, the environment and the
                          configuration file, with the origin of each value; -w yaml and -w json
  vigil version           print versions
  vigil help              print this text

Start a member with its data in ./default.etcd, serving clients on 127.0.0.1:2379:

  vigil

Try it from another terminal with any etcd client:

  etcdctl put greeting hello
  etcdctl get greeting
  etcdctl watch greeting --rev=1

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
			head := "  --" + f.name
			if f.value != "" {
				head += " " + f.value
			}
			if d := f.preset(); d != "" {
				head += " (default " + d + ")"
			}
			help := f.help
			if f.noEffect != "" {
				help = "accepted without effect: " + f.noEffect
			}
			fmt.Fprintf(w, "%s\n        %s\n", head, help)
		}
	}
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
