// Package complete lets a shell complete arguments with what the cluster has: keys, members, users, roles and leases. A cluster
// that does not answer within Timeout, or asks for a password, completes nothing.
package complete

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/screen"
)

// Timeout limits the questions to the cluster: somebody waits for the shell.
const Timeout = 2 * time.Second

// maxKeys limits the keys that are read for one completion.
const maxKeys = 500

// source returns what may follow the part of a word, each with a tab and a description if there is one.
type source func(ctx context.Context, c *client.Client, word string) ([]string, error)

// arguments has the sources of the arguments of each command; the last one holds for all further arguments.
var arguments = map[string][]source{
	"get": {keys, keys}, "put": {keys, none}, "del": {keys, keys}, "watch": {keys, keys}, "history": {keys, none}, "tree": {keys, none}, "diff": {keys, none}, "watchers": {keys, none},
	"member remove": {members, none}, "member update": {members, none}, "member promote": {members, none}, "move-leader": {members, none},
	"user get": {users, none}, "user delete": {users, none}, "user passwd": {users, none}, "user grant-role": {users, roles, none}, "user revoke-role": {users, roles, none},
	"role get": {roles, none}, "role delete": {roles, none}, "role grant-permission": {roles, words("read", "write", "readwrite"), keys}, "role revoke-permission": {roles, keys, keys},
	"lease revoke": {leases, none}, "lease timetolive": {leases, none}, "lease keep-alive": {leases, none},
}

// Register sets the completions of the commands below root.
func Register(root *cobra.Command, env *cli.Env) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		if list := arguments[path]; list != nil {
			c.ValidArgsFunction = func(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
				return ask(env, list[min(len(args), len(list)-1)], word)
			}
		}
		if path == "put" {
			_ = c.RegisterFlagCompletionFunc("lease", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
				return ask(env, leases, word)
			})
		}
	}
	walk(root)
}

// ask asks the cluster.
func ask(env *cli.Env, from source, word string) ([]string, cobra.ShellCompDirective) {
	env.Stdin, env.Stderr = strings.NewReader(""), io.Discard // no question, and no warning in the middle of a line
	ctx, cancel := context.WithTimeout(context.Background(), Timeout)
	defer cancel()
	env.Config.DialTimeout = min(env.Config.DialTimeout, Timeout)
	cl, err := env.Connect(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cl.Close()
	found, err := from(ctx, cl, word)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var list []string
	more := false
	for _, f := range found {
		if text, _, _ := strings.Cut(f, "\t"); strings.HasPrefix(text, word) {
			list = append(list, f)
			more = more || strings.HasSuffix(text, "/")
		}
	}
	if more {
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

func none(context.Context, *client.Client, string) ([]string, error) { return nil, nil }

func words(list ...string) source {
	return func(context.Context, *client.Client, string) ([]string, error) { return list, nil }
}

// keys returns the keys with a prefix, up to their next slash.
func keys(ctx context.Context, c *client.Client, word string) ([]string, error) {
	r, err := c.Get(ctx, word, client.WithPrefix(), client.WithKeysOnly(), client.WithLimit(maxKeys))
	if err != nil {
		return nil, err
	}
	var list []string
	for _, kv := range r.KVs {
		rest, ok := strings.CutPrefix(kv.Key, word)
		if !ok {
			continue // not what was asked for
		}
		key := kv.Key
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			key = key[:len(word)+i+1]
		}
		if len(list) == 0 || list[len(list)-1] != key {
			list = append(list, key)
		}
	}
	return complete(slices.Compact(list)), nil
}

// complete returns those of the names that a shell can complete. It would take a blank for the end of the word and a tab for the beginning
// of a description, a terminal may act on other characters, and bytes that are no UTF-8 cannot be typed.
func complete(names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		return !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r == ' ' || screen.Steers(r) })
	})
}

func members(ctx context.Context, c *client.Client, _ string) ([]string, error) {
	r, err := c.MemberList(ctx)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, m := range r.GetMembers() {
		list = append(list, fmt.Sprintf("%x\t%s", m.GetID(), screen.SafeLine(0, strings.ReplaceAll(m.GetName(), "\t", " "))))
	}
	return list, nil
}

func users(ctx context.Context, c *client.Client, _ string) ([]string, error) {
	r, err := c.UserList(ctx)
	return complete(r.GetUsers()), err
}

func roles(ctx context.Context, c *client.Client, _ string) ([]string, error) {
	r, err := c.RoleList(ctx)
	return complete(r.GetRoles()), err
}

func leases(ctx context.Context, c *client.Client, _ string) ([]string, error) {
	ids, err := c.Leases(ctx)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, id := range ids {
		list = append(list, fmt.Sprintf("%016x", int64(id)))
	}
	return list, nil
}
