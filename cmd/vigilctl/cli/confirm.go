package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
)

// Yes is the flag --yes of a command that asks before it destroys something.
type Yes bool

// AddFlag declares the flag.
func (y *Yes) AddFlag(c *cobra.Command) {
	c.Flags().BoolVarP((*bool)(y), "yes", "y", false, "ask nothing on a terminal")
}

// Asks reports whether the command asks: a person sees the question on a terminal, can answer it
// there, and has not answered it with --yes. In scripts the command runs as etcdctl does.
func (e *Env) Asks(y Yes) bool {
	return !bool(y) && e.Watched() && e.Reads()
}

// Watched reports whether standard output is a terminal. A person reads it then, and the output may
// contain more than etcdctl's.
func (e *Env) Watched() bool {
	_, _, terminal := screen.Size(e.Stdout)
	return terminal
}

// Confirm asks a question on the terminal. Unless the answer is yes, it returns an error that ends
// with nothing: what was not done.
func (e *Env) Confirm(ctx context.Context, nothing, question string) error {
	to := e.Stderr
	if !e.Hints() {
		to = e.Stdout // use the terminal if standard error goes elsewhere
	}
	fmt.Fprintf(to, "%s [y/N] ", question)
	line, err := bufio.NewReader(e.Input(ctx)).ReadString('\n')
	if err != nil {
		fmt.Fprintln(to) // the user typed no line feed
	}
	switch answer := strings.ToLower(strings.TrimSpace(line)); {
	case errors.Is(err, ErrInterrupted):
		return exit.With(exit.Interrupted, fmt.Errorf("interrupted; %s", nothing))
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case answer == "y" || answer == "yes":
		return nil
	}
	return exit.With(exit.Interrupted, fmt.Errorf("not confirmed; %s", nothing))
}

// ConfirmReplacing asks before it allows replacing a file.
func (e *Env) ConfirmReplacing(ctx context.Context, yes Yes, path, nothing string) error {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || !e.Asks(yes) {
		return nil
	}
	return e.Confirm(ctx, nothing,
		fmt.Sprintf("%s exists, of %s, with %s. Replace it?", path,
			st.ModTime().Format(time.DateTime), show.Size(st.Size())))
}

// CallAsking is Call for a command that destroys something. On a terminal and without yes, it first
// asks the text that question returns, unless that is empty. nothing tells in the error what was
// not done.
func (e *Env) CallAsking(c *cobra.Command, yes Yes, nothing string,
	question func(s Session) (string, error), run func(s Session) (show.Answer, error)) error {
	return e.connected(c, func(cl *client.Client) error {
		limited := func(run func(s Session) error) error {
			ctx, cancel := context.WithTimeout(c.Context(), e.Timeout())
			defer cancel()
			return run(Session{ctx, cl, cl.Conn()})
		}
		if e.Asks(yes) {
			text := ""
			err := limited(func(s Session) (err error) {
				text, err = question(s)
				return err
			})
			if err == nil && text != "" {
				err = e.Confirm(c.Context(), nothing, text)
			}
			if err != nil {
				return err
			}
		}
		return limited(func(s Session) error {
			answer, err := run(s)
			if err != nil {
				return err
			}
			return e.Print(answer)
		})
	})
}

// Note tells a person that something has no effect.
func (e *Env) Note(format string, args ...any) { e.Hint("note: "+format, args...) }

// Hints reports whether a person reads standard error, which is a terminal then. A script gets the
// same standard error as from etcdctl.
func (e *Env) Hints() bool {
	_, _, terminal := screen.Size(e.Stderr)
	return terminal
}

// Hint prints a hint for a person.
func (e *Env) Hint(format string, args ...any) {
	if e.Hints() {
		fmt.Fprintf(e.Stderr, format+"\n", args...)
	}
}
