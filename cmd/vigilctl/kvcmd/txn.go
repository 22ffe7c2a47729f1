package kvcmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/show"
)

const txnHelp = `Run a transaction that is read from standard input: three lists of lines, each terminated by an empty
line.

  1. Comparisons, TARGET("KEY") OPERATOR "VALUE": the target is one of value (val), version (ver),
     create (c), mod (m) and lease, the operator =, !=, < or >. The list may be empty.
  2. Requests to run if all comparisons are true: get, put and del with the arguments and flags of
     these commands.
  3. Requests to run if one is false.

The transaction is atomic: programs use it to update a key that others write too. The first line of
the output is SUCCESS or FAILURE, followed by the answers.`

const txnExample = `  vigilctl txn <<'END'
  mod("counter") = "7"

  put counter 8

  get counter

  END`

// Txn returns the command txn.
func Txn(env *cli.Env) *cobra.Command {
	var interactive bool
	c := &cobra.Command{
		Use:     "txn [options]",
		Short:   "Compare and write atomically",
		Long:    txnHelp,
		Example: txnExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usage("txn command does not accept argument: what to do is read from standard input")
			}
			r, err := readTxn(c.Context(), env, interactive)
			if err != nil {
				var e *exit.Error
				if errors.As(err, &e) {
					return err
				}
				return exit.With(exit.InvalidInput, err)
			}
			return env.Call(c, func(s cli.Session) (show.Answer, error) {
				resp, err := etcdserverpb.NewKVClient(s.Conn).Txn(s.Ctx, r)
				return show.Txn(resp), err
			})
		},
	}
	c.Flags().BoolVarP(&interactive, "interactive", "i", false, "prompt for each list")
	return c
}

// readTxn reads a transaction from standard input.
func readTxn(ctx context.Context, env *cli.Env,
	interactive bool) (*etcdserverpb.TxnRequest, error) {
	in := bufio.NewReader(env.Input(ctx))
	prompt := func(what string) {
		if interactive {
			fmt.Fprintln(env.Stdout, what)
		}
	}
	r := &etcdserverpb.TxnRequest{}
	prompt("compares:")
	err := readBlock(in, func(line string) error {
		c, err := parseCompare(line)
		r.Compare = append(r.Compare, c)
		return err
	})
	for _, list := range []struct {
		what string
		to   *[]*etcdserverpb.RequestOp
	}{{"success requests (get, put, del):", &r.Success},
		{"failure requests (get, put, del):", &r.Failure}} {
		if err != nil {
			return nil, err
		}
		prompt(list.what)
		err = readBlock(in, func(line string) error {
			op, err := parseRequest(line)
			*list.to = append(*list.to, op)
			return err
		})
	}
	return r, err
}

// readBlock reads lines up to an empty one.
func readBlock(in *bufio.Reader, each func(line string) error) error {
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return errors.New("the input ends within a transaction: each of its three lists is ended by an empty line")
		}
		if err != nil {
			return err
		}
		if line = strings.TrimSpace(line); line == "" {
			return nil
		}
		if err := each(line); err != nil {
			return err
		}
	}
}

var compareResults = map[string]etcdserverpb.Compare_CompareResult{"=": etcdserverpb.Compare_EQUAL,
	"!=": etcdserverpb.Compare_NOT_EQUAL,
	"<":  etcdserverpb.Compare_LESS, ">": etcdserverpb.Compare_GREATER}

// parseCompare parses a comparison.
func parseCompare(line string) (*etcdserverpb.Compare, error) {
	target, text, ok := strings.Cut(line, "(")
	rest := strings.NewReader(text)
	var key, op, value string
	if n, err := fmt.Fscanf(rest, "%q) %s %q", &key, &op, &value); !ok || n != 3 || err != nil {
		return nil, fmt.Errorf(`malformed comparison: %s; want TARGET("KEY") OPERATOR "VALUE", as in mod("name") = "7"`, line)
	}
	// Text after the comparison could be another condition, which would be ignored.
	if extra := strings.TrimSpace(text[len(text)-rest.Len():]); extra != "" {
		return nil, fmt.Errorf("malformed comparison: %s (unexpected %q after the value: one comparison a line)", line, extra)
	}
	c := &etcdserverpb.Compare{Key: []byte(key)}
	if c.Result, ok = compareResults[op]; !ok {
		return nil, fmt.Errorf("malformed comparison: %s (unknown operator %s: =, !=, < and > are known)", line, op)
	}
	var number func(int64)
	parse := command.Whole
	switch target {
	case "val", "value":
		c.Target, c.TargetUnion = etcdserverpb.Compare_VALUE,
			&etcdserverpb.Compare_Value{Value: []byte(value)}
		return c, nil
	case "ver", "version":
		c.Target = etcdserverpb.Compare_VERSION
		number = func(n int64) { c.TargetUnion = &etcdserverpb.Compare_Version{Version: n} }
	case "c", "create":
		c.Target = etcdserverpb.Compare_CREATE
		number = func(n int64) { c.TargetUnion = &etcdserverpb.Compare_CreateRevision{CreateRevision: n} }
	case "m", "mod":
		c.Target = etcdserverpb.Compare_MOD
		number = func(n int64) { c.TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: n} }
	case "lease":
		c.Target, parse = etcdserverpb.Compare_LEASE, command.Hex
		number = func(n int64) { c.TargetUnion = &etcdserverpb.Compare_Lease{Lease: n} }
	default:
		return nil, fmt.Errorf("malformed comparison: %s (unknown target %s)", line, target)
	}
	n, err := parse(value)
	if err != nil {
		return nil, fmt.Errorf("invalid txn compare request: %s (%w)", line, err)
	}
	number(n)
	return c, nil
}

// parseRequest parses a request: get, put or del with its flags.
func parseRequest(line string) (*etcdserverpb.RequestOp, error) {
	words, err := splitWords(line)
	if err != nil {
		return nil, err
	}
	if len(words) < 2 {
		return nil, fmt.Errorf("invalid txn compare request: %s; want get, put or del with a key",
			line)
	}
	op := &etcdserverpb.RequestOp{}
	var (
		get getFlags
		put putFlags
		del delFlags
	)
	requests := map[string]struct {
		flags func(*pflag.FlagSet)
		make  func(args []string) error
	}{
		"get": {get.addFlags, func(args []string) error {
			r, err := get.request(args)
			op.Request = &etcdserverpb.RequestOp_RequestRange{RequestRange: r}
			return err
		}},
		"put": {put.addFlags, func(args []string) error {
			// Standard input contains the transaction, not a value.
			r, err := put.request(args, strings.NewReader(""))
			op.Request = &etcdserverpb.RequestOp_RequestPut{RequestPut: r}
			return err
		}},
		"del": {del.addFlags, func(args []string) error {
			r, err := del.request(args)
			op.Request = &etcdserverpb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}
			return err
		}},
	}
	request, ok := requests[words[0]]
	if !ok {
		return nil, fmt.Errorf("invalid txn request: %s (unknown request %s: get, put and del are known)", line, words[0])
	}
	flags := pflag.NewFlagSet(words[0], pflag.ContinueOnError)
	flags.Usage = func() {}
	request.flags(flags)
	if err := flags.Parse(words[1:]); err != nil {
		return nil, fmt.Errorf("invalid txn request: %s (%w)", line, err)
	}
	return op, request.make(flags.Args())
}
