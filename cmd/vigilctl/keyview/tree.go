package keyview

import (
	"context"
	"fmt"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/show"
	"vigil/internal/amount"
)

const treeHelp = `Show the keys with a prefix as a tree, split at a separator.

After each branch follow the number of keys below it, and with --sizes the bytes of
their keys and values. Only the branches that are shown are kept in memory.`

// Tree returns the command tree.
func Tree(env *cli.Env) *cobra.Command {
	t := tree{}
	c := &cobra.Command{
		Use:     "tree [options] [prefix]",
		Short:   "Show keys as a tree, with counts",
		Long:    treeHelp,
		Example: "  vigilctl tree\n  vigilctl tree /registry/ --depth 2 --sizes",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) > 1:
				return exit.Usage("tree takes one prefix, not %d arguments", len(args))
			case t.depth < 1:
				return exit.Usage("--depth %d: at least 1", t.depth)
			case t.separator == "":
				return exit.Usage("--separator must not be empty")
			}
			prefix := ""
			if len(args) == 1 {
				prefix = args[0]
			}
			p, err := env.Printer(show.Simple, show.JSON, show.YAML)
			if err != nil {
				return err
			}
			return env.RunLong(c,
				func(ctx context.Context,
					cl *client.Client) error {
					return t.printTree(ctx, cl, prefix, p)
				})
		},
	}
	c.Flags().StringVar(&t.separator, "separator", "/", "the separator of the parts of a key")
	c.Flags().IntVar(&t.depth, "depth", 3, "the number of levels to show")
	c.Flags().BoolVar(&t.sizes, "sizes", false,
		"add up the bytes of keys and values, which reads all values")
	return c
}

// tree has the options of a tree.
type tree struct {
	separator string
	depth     int
	sizes     bool
}

// branch is a part of a key, and the branches below it.
type branch struct {
	Name     keytext.JSON       `json:"name"`
	Key      bool               `json:"key,omitempty"` // a key ends here
	Keys     int64              `json:"keys"`          // below it, itself included
	Bytes    int64              `json:"bytes,omitempty"`
	Branches []*branch          `json:"branches,omitempty"`
	below    map[string]*branch // branches by name
}

func (b *branch) child(name string) *branch {
	c := b.below[name]
	if c == nil {
		c = &branch{Name: keytext.JSON(name)}
		if b.below == nil {
			b.below = map[string]*branch{}
		}
		b.below[name] = c
		b.Branches = append(b.Branches, c)
	}
	return c
}

func (t *tree) printTree(ctx context.Context, c *client.Client, prefix string,
	p *show.Printer) error {
	opts := []client.GetOption{client.WithPrefix()}
	if !t.sizes {
		opts = append(opts, client.WithKeysOnly())
	}
	root := &branch{Name: keytext.JSON(prefix)}
	for kv, err := range c.List(ctx, prefix, opts...).All() {
		if err != nil {
			return err
		}
		t.addKey(root, strings.TrimPrefix(kv.Key, prefix), int64(len(kv.Key)+len(kv.Value)))
	}
	if p.Format != show.Simple {
		return p.Print(show.Answer{Value: root})
	}
	if err := p.Line("%s", t.line(root)); err != nil {
		return err
	}
	return t.drawBranches(root, "", p)
}

// addKey counts a key; rest is the key without the prefix.
func (t *tree) addKey(root *branch, rest string, size int64) {
	if !t.sizes {
		size = 0
	}
	root.Keys++
	root.Bytes += size
	at := root
	for level := 0; level < t.depth && rest != ""; level++ {
		// A leading separator belongs to the part after it, as in /registry/pods.
		skip := 0
		if strings.HasPrefix(rest, t.separator) {
			skip = len(t.separator)
		}
		name := rest
		if i := strings.Index(rest[skip:], t.separator); i >= 0 {
			name = rest[:skip+i+len(t.separator)]
		}
		rest = rest[len(name):]
		at = at.child(name)
		at.Keys++
		at.Bytes += size
	}
	at.Key = at.Key || rest == ""
}

// line returns the line of text for a branch.
func (t *tree) line(b *branch) string {
	s := keytext.Quote(string(b.Name))
	if b.Name == "" {
		s = "(all keys)"
	}
	if b.Keys > 1 || !b.Key {
		s += fmt.Sprintf("  %d", b.Keys)
	}
	if t.sizes {
		s += "  " + amount.Bytes(b.Bytes)
	}
	return s
}

// drawBranches prints the branches below one branch.
func (t *tree) drawBranches(b *branch, margin string, p *show.Printer) error {
	sort.Slice(b.Branches, func(i, j int) bool { return b.Branches[i].Name < b.Branches[j].Name })
	for i, c := range b.Branches {
		mark, below := "├── ", "│   "
		if i == len(b.Branches)-1 {
			mark, below = "└── ", "    "
		}
		if err := p.Line("%s%s%s", margin, mark, t.line(c)); err != nil {
			return err
		}
		if err := t.drawBranches(c, margin+below, p); err != nil {
			return err
		}
	}
	return nil
}
