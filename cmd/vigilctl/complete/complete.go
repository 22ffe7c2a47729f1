// Package complete lets a shell complete arguments with what the cluster has: keys, members, users,
// roles and leases. A cluster that does not answer within Timeout, or asks for a password,
// completes nothing.
//
//  1. Other users choose the names that the cluster has, and the shell belongs to an administrator.
//     No name is offered that is anything but one plain word in a shell, whatever its source:
//     shells insert the beginning that several names have in common without quotes.
//  2. The scripts for the shells evaluate no text.
package complete

import (
	"context"
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/screen"
)

// Timeout limits the questions to the cluster: a person waits for the shell.
const Timeout = 2 * time.Second

// maxKeys limits how many keys one completion reads.
const maxKeys = 500

// Shells are the shells for which there are scripts.
var Shells = []string{"bash", "zsh", "fish", "powershell"}

//go:embed scripts
var scripts embed.FS

// Script returns the script that makes a shell complete vigilctl's command lines.
func Script(shell string) ([]byte, error) {
	if shell == "powershell" {
		shell = "ps1"
	}
	return scripts.ReadFile("scripts/vigilctl." + shell)
}

// source returns the completions of a part of a word. Each may have a tab and a description. ask
// decides which are offered.
type source func(ctx context.Context, c *client.Client, word string) ([]string, error)

// arguments has the sources for the arguments of each command; the last source serves all further
// arguments.
var arguments = map[string][]source{
	"get": {keys, keys}, "put": {keys, none}, "del": {keys, keys}, "watch": {keys, keys},
	"history": {keys, none}, "tree": {keys, none}, "ls": {keys, none}, "diff": {keys, none},
	"watchers":      {keys, none},
	"member remove": {members, none}, "member update": {members, none},
	"member promote": {members, none}, "move-leader": {members, none},
	"user get": {users, none}, "user delete": {users, none}, "user passwd": {users, none},
	"user grant-role": {users, roles, none}, "user revoke-role": {users, roles, none},
	"role get": {roles, none}, "role delete": {roles, none},
	"role grant-permission":  {roles, words("read", "write", "readwrite"), keys},
	"role revoke-permission": {roles, keys, keys},
	"lease revoke":           {leases, none}, "lease timetolive": {leases, none},
	"lease keep-alive": {leases, none},
}

// Register sets the completions of all commands below root.
func Register(root *cobra.Command, env *cli.Env) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		_, path, _ := strings.Cut(c.CommandPath(), " ")
		if list := arguments[path]; list != nil {
			c.ValidArgsFunction = func(_ *cobra.Command, args []string, word string) ([]string,
				cobra.ShellCompDirective) {
				return ask(env, list[min(len(args), len(list)-1)], word)
			}
		}
		if path == "put" {
			_ = c.RegisterFlagCompletionFunc("lease",
				func(_ *cobra.Command, _ []string, word string) ([]string,
					cobra.ShellCompDirective) {
					return ask(env, leases, word)
				})
		}
	}
	walk(root)
}

// ask asks the cluster.
func ask(env *cli.Env, from source, word string) ([]string, cobra.ShellCompDirective) {
	// ask nothing, and print no warning into the command line
	env.Stdin, env.Stderr = strings.NewReader(""), io.Discard
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
		text, about, described := strings.Cut(f, "\t")
		if !strings.HasPrefix(text, word) || !plain(text) {
			continue
		}
		more = more || strings.HasSuffix(text, "/")
		if described {
			text += "\t" + screen.SafeLine(0, about)
		}
		list = append(list, text)
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
	r, err := c.Get(ctx, word, client.WithPrefix(), client.WithKeysOnly(),
		client.WithLimit(maxKeys))
	if err != nil {
		return nil, err
	}
	var list []string
	for _, kv := range r.KVs {
		rest, ok := strings.CutPrefix(kv.Key, word)
		if !ok {
			continue // not requested
		}
		key := kv.Key
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			key = key[:len(word)+i+1]
		}
		if len(list) == 0 || list[len(list)-1] != key {
			list = append(list, key)
		}
	}
	return slices.Compact(list), nil
}

// plain reports whether every shell takes a name as one literal word, wherever an argument may be.
// Such a name has letters, digits and few other characters, and does not start like a flag, a job
// or an expansion.
func plain(name string) bool {
	for i, r := range name {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), strings.ContainsRune("/._", r):
		case i > 0 && (unicode.IsMark(r) || strings.ContainsRune("-:@%+=", r)):
		default:
			return false
		}
	}
	return name != ""
}

// members returns the names of members. It adds IDs for a word that can start one, and where a name
// cannot be used.
func members(ctx context.Context, c *client.Client, word string) ([]string, error) {
	r, err := c.Cluster().MemberList(ctx)
	if err != nil {
		return nil, err
	}
	named := map[string]int{}
	for _, m := range r.Members {
		named[m.Name]++
	}
	var names, ids []string
	for _, m := range r.Members {
		id := fmt.Sprintf("%x", m.ID)
		unique := named[m.Name] == 1 && plain(m.Name)
		if unique {
			names = append(names, m.Name+"\t"+id)
		}
		if word != "" || !unique {
			ids = append(ids, id+"\t"+m.Name)
		}
	}
	return append(names, ids...), nil
}

func users(ctx context.Context, c *client.Client, _ string) ([]string, error) {
	return c.Auth().UserList(ctx)
}

func roles(ctx context.Context, c *client.Client, _ string) ([]string, error) {
	return c.Auth().RoleList(ctx)
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
