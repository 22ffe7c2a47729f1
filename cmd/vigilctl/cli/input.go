package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"vigil/cmd/vigilctl/exit"
)

// ErrInterrupted reports that the user interrupted the command.
var ErrInterrupted = exit.With(exit.Interrupted, errors.New("interrupted"))

// Input returns a reader of standard input whose reads return ErrInterrupted when the context is
// done. The data of an interrupted read are lost.
func (e *Env) Input(ctx context.Context) io.Reader { return interruptible{ctx, e.Stdin} }

type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i interruptible) Read(b []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	own := make([]byte, min(len(b), 64<<10)) // after an interrupt the caller may reuse b
	go func() {
		n, err := i.r.Read(own)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return copy(b, own[:r.n]), r.err
	case <-i.ctx.Done():
		return 0, ErrInterrupted
	}
}

// terminalInput returns standard input if it is a terminal, nil otherwise.
func (e *Env) terminalInput() *os.File {
	f, ok := e.Stdin.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	return f
}

// Reads reports whether standard input is a terminal, at which a person types.
func (e *Env) Reads() bool { return e.terminalInput() != nil }

// AskPassword reads a password from the terminal without echoing it. Without a terminal it returns
// an error that ends with otherwise: how to give the password.
func (e *Env) AskPassword(ctx context.Context, prompt, otherwise string) (string, error) {
	f := e.terminalInput()
	if f == nil {
		return "", fmt.Errorf("a password is needed, and standard input is not a terminal: %s",
			otherwise)
	}
	state, err := term.GetState(int(f.Fd()))
	if err != nil {
		return "", err
	}
	fmt.Fprint(e.Stderr, prompt)
	defer fmt.Fprintln(e.Stderr)
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() {
		b, err := term.ReadPassword(int(f.Fd()))
		read <- line{b, err}
	}()
	select {
	case l := <-read:
		return string(l.text), l.err
	case <-ctx.Done():
		return "", errors.Join(ErrInterrupted, term.Restore(int(f.Fd()), state))
	}
}
