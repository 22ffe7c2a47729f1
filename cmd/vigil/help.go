package main

import (
	"fmt"
	"io"
)

// usage writes the help text.
func usage(w io.Writer) {
	fmt.Fprint(w, `Vigil is a durable, watchable key-value store that speaks the etcd v3 API.

  vigil [flags]           run a member
  vigil config [flags]    print the configuration that these flags, the environment and the
                          configuration file give together, and where each value comes from

Start a member with its data in ./default.etcd, serving clients on 127.0.0.1:2379:

  vigil

Try it from another terminal with any etcd client:

  etcdctl put greeting hello
  etcdctl get greeting
  etcdctl watch greeting --rev=1

Each flag can also be set by an environment variable, --data-dir by ETCD_DATA_DIR and so on, and in the
file that --config-file names, data-dir: DIR. The command line wins over the environment and that over
the file. A flag that is given twice has its last value; one that is true or false needs none to be true.
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
				help = "taken, and changes nothing: " + f.noEffect
			}
			fmt.Fprintf(w, "%s\n        %s\n", head, help)
		}
	}
}

// preset is the default as --help shows it.
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
