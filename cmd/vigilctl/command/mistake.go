package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vigil/internal/spelling"
)

// synonyms are words for one thing in this program, its older versions and similar programs. A word
// stands for the first command that is named with a word of the same line.
var synonyms = [][]string{
	{"ls", "list", "show", "keys", "dir"},
	{"del", "delete", "remove", "rm", "rmdir", "revoke"},
	{"put", "set", "mk", "mkdir", "update"},
	{"add", "grant", "create", "new"},
	{"endpoint", "cluster-health", "cluster", "health", "status"},
	{"snapshot", "backup"},
	{"dump", "export"},
	{"load", "import"},
	{"watch", "exec-watch", "tail"},
	{"timetolive", "ttl"},
	{"keep-alive", "renew"},
	{"passwd", "password"},
	{"make-mirror", "copy", "sync"},
	{"downgrade", "upgrade"},
}

// Unknown returns the error for a word that is not a command below c, with suggestions.
func Unknown(c *cobra.Command, word string) error {
	text := fmt.Sprintf("unknown command %q for %q", word, c.CommandPath())
	if meant := meantCommands(c, word); len(meant) > 0 {
		last := len(meant) - 1
		if list := strings.Join(meant[:last], ", "); list != "" {
			return fmt.Errorf("%s; did you mean %s or %s?", text, list, meant[last])
		}
		return fmt.Errorf("%s; did you mean %s?", text, meant[last])
	}
	return fmt.Errorf("%s; see %s --help", text, c.CommandPath())
}

// meantCommands returns the commands that a word below c probably stands for: commands that start
// with it, synonyms, commands of this name in groups, or else the most similar one.
func meantCommands(c *cobra.Command, word string) (list []string) {
	var known, below []string
	for _, sub := range c.Commands() {
		if sub.Hidden {
			continue
		}
		known = append(append(known, sub.Name()), sub.Aliases...)
		for _, leaf := range sub.Commands() {
			if leaf.Name() == word {
				below = append(below, sub.Name()+" "+word)
			}
		}
		if word != "" && strings.HasPrefix(sub.Name(), word) {
			list = append(list, sub.Name())
		}
	}
	if len(list) > 0 {
		return list
	}
	for _, words := range synonyms {
		if !slices.Contains(words, word) {
			continue
		}
		if i := slices.IndexFunc(words,
			func(w string) bool { return slices.Contains(known, w) }); i >= 0 &&
			!slices.Contains(below, words[i]+" "+word) {
			list = append(list, words[i])
		}
	}
	if list = append(list, below...); len(list) > 0 {
		return list
	}
	if s := spelling.Nearest(word, known); s != "" {
		return []string{s}
	}
	return nil
}

// OnlySubcommands rejects arguments of a command that only has subcommands.
func OnlySubcommands(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Unknown(c, args[0])
	}
	return nil
}

// otherFlags maps flag names of similar programs to flags of this one.
var otherFlags = map[string]string{"output": "write-out", "o": "write-out", "format": "write-out",
	"recursive": "prefix", "r": "prefix", "all": "prefix",
	"endpoint": "endpoints", "e": "endpoints", "host": "endpoints", "H": "endpoints",
	"ca-file": "cacert", "cert-file": "cert", "key-file": "key", "username": "user", "u": "user",
	"timeout": "command-timeout", "revision": "rev", "ttl": "lease", "force": "yes"}

// FlagError returns the error for a wrong flag. It suggests the right flag, or names the possible
// values.
func FlagError(c *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return fmt.Errorf("%w; %s", err, unknownFlag(c, unknown))
	}
	if without, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		name, usage := pflag.UnquoteUsage(without.GetFlag())
		return fmt.Errorf("%w; --%s %s: %s", err, without.GetFlag().Name, name, usage)
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		name := wrong.GetFlag().Name
		return fmt.Errorf("invalid argument %q for %q flag: %w", wrong.GetValue(), "--"+name,
			ValueError(wrong.GetFlag(), wrong.GetValue(), wrong.Unwrap()))
	}
	return err
}

// unknownFlag returns advice for an unknown flag.
func unknownFlag(c *cobra.Command, unknown *pflag.NotExistError) string {
	var known []string
	add := func(f *pflag.Flag) { known = append(known, f.Name) }
	c.Flags().VisitAll(add)
	c.InheritedFlags().VisitAll(add)
	name := unknown.GetSpecifiedName()
	if letters := unknown.GetSpecifiedShortnames(); len(letters) > 1 {
		name, _, _ = strings.Cut(letters, "=") // a flag with one dash where two are needed
		if slices.Contains(known, name) {
			return "did you mean --" + name + "?"
		}
		name = unknown.GetSpecifiedName()
	}
	switch other := otherFlags[name]; {
	case other != "" && slices.Contains(known, other):
		return "did you mean --" + other + "?"
	case name == "prefix" && strings.Contains(c.Use, "prefix"):
		return fmt.Sprintf("the prefix is an argument: vigilctl %s", c.Use)
	case unknown.GetSpecifiedShortnames() != "" && !c.HasSubCommands():
		return fmt.Sprintf(`write "--" before arguments that begin with a dash: %s ... -- -%s; see %s --help`, c.CommandPath(), unknown.GetSpecifiedShortnames(), c.CommandPath())
	}
	if s := spelling.Nearest(name, known); s != "" {
		return "did you mean --" + s + "?"
	}
	return "see " + c.CommandPath() + " --help"
}

// ValueError returns the error for a wrong flag value.
func ValueError(f *pflag.Flag, value string, err error) error {
	switch kind := f.Value.Type(); {
	case kind == "bool":
		return fmt.Errorf("want true or false, not %q", value)
	case kind == "duration":
		return fmt.Errorf("want a duration such as 500ms, 5s or 1m30s, not %q", value)
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		if _, ok := errors.AsType[*strconv.NumError](err); !ok {
			return fmt.Errorf("want %s, not %q", wholeNumber, value)
		}
		return numberError(err, wholeNumber)
	}
	return err
}
