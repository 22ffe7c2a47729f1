package command

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"vigil/internal/spelling"
)

// Unknown returns the error for a word that is no command below c, with the command that is probably meant.
func Unknown(c *cobra.Command, word string) error {
	var known []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			known = append(append(known, sub.Name()), sub.Aliases...)
		}
	}
	text := fmt.Sprintf("unknown command %q for %q", word, c.CommandPath())
	if s := spelling.Nearest(word, known); s != "" {
		return fmt.Errorf("%s; did you mean %s?", text, s)
	}
	return fmt.Errorf("%s; see %s --help", text, c.CommandPath())
}

// OnlySubcommands are the arguments of a command that has only subcommands.
func OnlySubcommands(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Unknown(c, args[0])
	}
	return nil
}

// FlagError returns the error for a mistake in a flag: which one is meant, or which values it takes.
func FlagError(c *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		var known []string
		add := func(f *pflag.Flag) { known = append(known, f.Name) }
		c.Flags().VisitAll(add)
		c.InheritedFlags().VisitAll(add)
		if s := spelling.Nearest(unknown.GetSpecifiedName(), known); s != "" {
			return fmt.Errorf("%w; did you mean --%s?", err, s)
		}
		return err
	}
	if wrong, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		name := wrong.GetFlag().Name
		return fmt.Errorf("invalid argument %q for %q flag: %w", wrong.GetValue(), "--"+name, ValueError(wrong.GetFlag(), wrong.GetValue(), wrong.Unwrap()))
	}
	return err
}

// ValueError returns what is wrong with the value of a flag.
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
