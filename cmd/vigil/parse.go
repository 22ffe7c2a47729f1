package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"vigil/internal/spelling"
)

// errUsage marks a mistake in the configuration. The text names the flag, the variable or the line.
var errUsage = errors.New("see vigil --help")

// parse reads the configuration file, the environment and the arguments. Each of them overrides the
// one before. The error names every mistake, or is flag.ErrHelp if help was requested. With
// --version only the arguments count.
func parse(args, environ []string) (*options, error) {
	p := &parser{o: newOptions(), byName: map[string]*option{}, byVar: map[string]*option{}}
	p.o.each(func(opt *option) {
		p.byName[opt.name] = opt
		if opt.variable() != "" {
			p.byVar[opt.variable()] = opt
		}
	})
	given, err := p.splitArguments(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil, err
	}
	p.fail(err)
	if given["version"] != nil {
		for name, values := range given {
			p.setOption(p.byName[name], values, origin{kind: "flag"})
		}
		if p.o.version || len(p.errs) > 0 {
			return p.o, p.mistakes()
		}
	}
	vars := p.environment(environ)
	if path := last(given["config-file"], vars["config-file"]); path != "" {
		p.file(path)
	}
	for name, values := range vars {
		opt := p.byName[name]
		p.setOption(opt, values, origin{"environment", opt.variable()})
	}
	for name, values := range given {
		p.setOption(p.byName[name], values, origin{kind: "flag"})
	}
	p.o.config = p.o.config.WithDefaults()
	p.fail(p.o.log.validate())
	p.fail(p.o.config.Validate())
	return p.o, p.mistakes()
}

// goneFlags are flags of old versions of etcd. etcd accepts them, but does not show them in its
// help.
var goneFlags = []string{"cluster-active-size", "cluster-remove-delay", "cluster-sync-interval",
	"config", "force", "max-result-buffer",
	"max-retry-attempts", "peer-heartbeat-interval", "peer-election-timeout", "retry-interval",
	"snapshot", "v", "vv"}

// parser collects the mistakes.
type parser struct {
	o             *options
	byName, byVar map[string]*option
	errs          []error
}

// mistakes returns all mistakes as one error, nil without any.
func (p *parser) mistakes() error {
	if len(p.errs) == 0 {
		return nil
	}
	slices.SortFunc(p.errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return fmt.Errorf("%w (%w)", errors.Join(p.errs...), errUsage)
}

func (p *parser) fail(err error) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
}

// last returns the last value of the first list that has a value.
func last(lists ...[]string) string {
	for _, l := range lists {
		if len(l) > 0 {
			return l[len(l)-1]
		}
	}
	return ""
}

// setOption sets an option to the last of the values in one source.
func (p *parser) setOption(o *option, values []string, from origin) {
	value := last(values)
	if o.joins {
		value = strings.Join(values, ",")
	}
	if err := o.set(value); err != nil {
		shown := o.show(value)
		if shown != masked {
			shown = strconv.Quote(shown)
		}
		where := "--" + o.name + "=" + shown
		switch from.kind {
		case "environment":
			where = from.where + "=" + shown
		case "file":
			where = from.where + ": " + o.name + ": " + shown
		}
		p.fail(fmt.Errorf("%s: %w", where, err))
		return
	}
	o.origin = from
}

// splitArguments splits the command line into flags and their values: --flag=value, --flag value,
// and --flag alone for a boolean flag, with one or two dashes. Package flag has the same syntax,
// but stops at the first mistake and at the first word that is not a flag.
func (p *parser) splitArguments(args []string) (map[string][]string, error) {
	given := map[string][]string{}
	var errs []error
	boolean := "" // the previous flag, if it is a boolean without a value
	for len(args) > 0 {
		arg, alone := args[0], boolean
		args, boolean = args[1:], ""
		name, value, has := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		switch {
		case arg == "--" && len(args) == 0:
			continue // the end of the flags: nothing may follow
		case alone != "" && isBoolean(arg):
			errs = append(errs, fmt.Errorf("%q is not a flag; did you mean --%s=%s?",
				arg, alone, arg))
			continue
		case !strings.HasPrefix(arg, "-") || name == "":
			errs = append(errs, fmt.Errorf("%q is not a flag%s", arg,
				suggestWord(arg, p.o.flagNames())))
			if slices.Contains(clientCommands, arg) || slices.Contains(proxyWords, arg) {
				return given, errors.Join(errs...) // the other program parses the rest
			}
			if strings.TrimLeft(arg, dashes) != arg && !has {
				args = skipValue(args)
			}
			continue
		case name == "help" || name == "h":
			return nil, flag.ErrHelp
		}
		o := p.byName[name]
		switch {
		case o == nil && slices.Contains(goneFlags, name):
			p.o.goneFlags = append(p.o.goneFlags, name)
			continue
		case o == nil:
			errs = append(errs, cmp.Or(errRemoved(name, "--"+name),
				fmt.Errorf("there is no flag --%s%s", name, suggestFlag(name, p.o.flagNames()))))
			if !has {
				args = skipValue(args)
			}
			continue
		case has:
		case o.isBool:
			value, boolean = "true", name
		case len(args) == 0:
			errs = append(errs, fmt.Errorf("flag --%s needs an argument", name))
			continue
		case p.isFlag(args[0]):
			errs = append(errs, fmt.Errorf("flag --%s needs an argument, and %s is a flag; if it is the argument, write --%[1]s=%[2]s", name, args[0]))
			continue
		default:
			value, args = args[0], args[1:]
		}
		given[name] = append(given[name], value)
	}
	return given, errors.Join(errs...)
}

// skipValue skips the first word unless it is a flag: it is probably the value of an unknown flag.
func skipValue(args []string) []string {
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		return args[1:]
	}
	return args
}

// isFlag reports whether a word is a flag with two dashes and without a value.
func (p *parser) isFlag(word string) bool {
	name, ok := strings.CutPrefix(word, "--")
	return ok && p.byName[name] != nil
}

func isBoolean(word string) bool {
	_, err := strconv.ParseBool(word)
	return err == nil
}

// flagNames returns the names of all flags.
func (o *options) flagNames() (list []string) {
	o.each(func(opt *option) { list = append(list, opt.name) })
	return list
}

// commands are the possible first words of the command line.
var commands = []string{"config", "help", "version"}

// clientCommands are commands of vigilctl that somebody may give to this program. startWords name
// what this program does without a command, proxyWords what only etcd can do.
var (
	clientCommands = []string{"alarm", "archive", "auth", "check", "compaction", "completion",
		"defrag", "del", "diff", "doctor", "downgrade",
		"dump", "elect", "endpoint", "get", "hashkv", "history", "lease", "load", "lock", "ls",
		"make-mirror", "member", "move-leader", "options", "put",
		"role", "snapshot", "top", "tree", "txn", "user", "watch", "watchers"}
	startWords = []string{"start", "run", "serve", "server"}
	proxyWords = []string{"gateway", "grpc-proxy"}
)

// suggestWord suggests the intended command or flag for an unknown word.
func suggestWord(word string, flags []string) string {
	switch {
	case slices.Contains(clientCommands, word):
		return didYouMean("vigilctl ", word)
	case slices.Contains(proxyWords, word):
		return "; vigil has no proxy, and that of etcd works in front of its members: etcd " + word
	case slices.Contains(startWords, word):
		return "; vigil without a command runs a member"
	}
	if c := spelling.Nearest(word, commands); c != "" {
		return didYouMean("vigil ", c)
	}
	return suggestFlag(word, flags)
}

// dashes are typographic dashes: programs for texts replace two hyphens with them.
const dashes = "\u2010\u2011\u2012\u2013\u2014\u2212"

// suggestFlag suggests the flag for a word with missing or typographic dashes.
func suggestFlag(word string, flags []string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(word, "-"+dashes), "=")
	return didYouMean("--", spelling.Nearest(strings.ToLower(name), flags))
}

// didYouMean formats a suggestion, "" without a word.
func didYouMean(prefix, word string) string {
	if word == "" {
		return ""
	}
	return "; did you mean " + prefix + word + "?"
}

// otherVars are variables of etcd that have neither a flag nor an effect here: the strictness of
// etcd's self-checks, and the permission to run on an untested processor.
var otherVars = []string{"ETCD_UNSUPPORTED_ARCH", "ETCD_VERIFY"}

// environment returns the flags that environment variables set. An empty variable counts as unset.
func (p *parser) environment(environ []string) map[string][]string {
	given := map[string][]string{}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		word, ok := strings.CutPrefix(name, "ETCD_")
		if !ok || value == "" {
			continue
		}
		err := errRemoved(strings.ToLower(strings.ReplaceAll(word, "_", "-")), name)
		switch o, ok := p.byVar[name]; {
		case ok:
			given[o.name] = []string{value}
		case err != nil:
			p.fail(err)
		case !slices.Contains(otherVars, name):
			p.o.unknownVars = append(p.o.unknownVars,
				unknownVar{name, spelling.Nearest(name, slices.Sorted(maps.Keys(p.byVar)))})
		}
	}
	slices.SortFunc(p.o.unknownVars,
		func(a, b unknownVar) int { return strings.Compare(a.name, b.name) })
	return given
}

// environ returns the process environment.
func environ() []string { return os.Environ() }
