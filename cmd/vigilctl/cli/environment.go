package cli

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/internal/spelling"
)

// prefixes are the prefixes of environment variables; the first one wins.
var prefixes = []string{"VIGILCTL_", "ETCDCTL_"}

// notFlags are names after a prefix that do not belong to a global flag.
var notFlags = []string{"API", "WATCH_KEY", "WATCH_RANGE_END"}

// variable returns the environment variable of a flag.
func variable(prefix, flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Getenv returns the environment variable VIGILCTL_name, or ETCDCTL_name if that is empty.
func Getenv(name string) string {
	for _, prefix := range prefixes {
		if v := os.Getenv(prefix + name); v != "" {
			return v
		}
	}
	return ""
}

// Prepare sets the global flags that are not on the command line from the environment, and checks
// them.
func (e *Env) Prepare(c *cobra.Command, _ []string) error {
	if !c.HasParent() {
		return nil // the command prints the help
	}
	if err := e.setFromEnvironment(c); err != nil {
		return err
	}
	for _, name := range []string{"cert", "key", "cacert"} {
		if f := c.InheritedFlags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" {
			return exit.Usage("empty string is passed to --%s option", name)
		}
	}
	if e.debug {
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
			v := f.Value.String()
			if v != "" && slices.Contains(secrets, f.Name) {
				v = "(not shown)"
			}
			v = users.ReplaceAllString(v, "...@")
			fmt.Fprintf(e.Stderr, "%s=%s\n", variable("VIGILCTL_", f.Name), v)
		})
	}
	return nil
}

// users matches users and passwords in URLs. They do not belong there, but must not appear in a log
// either.
var users = regexp.MustCompile(`[^/,\s\[]*@`)

// setFromEnvironment sets each flag that is not given from its environment variable: --endpoints
// from VIGILCTL_ENDPOINTS or ETCDCTL_ENDPOINTS. It is an error to give both a flag and its
// variable, or a wrong value in a variable that etcdctl does not have.
func (e *Env) setFromEnvironment(c *cobra.Command) error {
	flags := c.Flags()
	var wrong error
	e.given = map[string]string{}
	known := map[string]bool{}
	for _, prefix := range prefixes {
		for _, name := range notFlags {
			known[prefix+name] = true
		}
	}
	c.Root().PersistentFlags().VisitAll(func(f *pflag.Flag) {
		f = flags.Lookup(f.Name) // the command's own flag of this name, if any
		given, set := f.Changed, false
		for _, prefix := range prefixes {
			name := variable(prefix, f.Name)
			known[name] = true
			v, ok := os.LookupEnv(name)
			switch {
			case ok && given && wrong == nil:
				wrong = fmt.Errorf("--%s is given and %s is set, too: leave one of them out",
					f.Name, name)
			case v != "" && !set && wrong == nil:
				set = true
				err := flags.Set(f.Name, v)
				if err == nil {
					e.given[f.Name] = name
					break
				}
				err = fmt.Errorf("%s: %w", name, command.FlagError(c, err))
				if prefix == prefixes[0] {
					wrong = err
					break
				}
				// etcdctl ignores the mistake, so scripts may contain it.
				_ = f.Value.Set(f.DefValue) // a malformed value may have set it to 0
				fmt.Fprintf(e.Stderr, "warning: %v; it is ignored\n", err)
			}
		}
	})
	for _, env := range os.Environ() {
		name, _, _ := strings.Cut(env, "=")
		if slices.ContainsFunc(prefixes,
			func(p string) bool { return strings.HasPrefix(name, p) }) && !known[name] {
			meant := ""
			if s := spelling.Nearest(name, slices.Sorted(maps.Keys(known))); s != "" {
				meant = "; did you mean " + s + "?"
			}
			fmt.Fprintf(e.Stderr,
				"warning: the environment variable %s belongs to no flag%s\n", name, meant)
		}
	}
	return wrong
}
