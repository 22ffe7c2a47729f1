package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false,
	"write the lists of flags into docs/operations/configuration.md")

const configurationDoc = "../../docs/operations/configuration.md"

// TestDocumentation: the documentation lists the flags of the program. With
// -rewrite they become it.
func TestDocumentation(t *testing.T) {
	b, err := os.ReadFile(configurationDoc)
	if err != nil {
		t.Fatal(err)
	}
	const begin, end = "<!-- flags -->\n", "<!-- end of flags -->"
	head, rest, ok := strings.Cut(string(b), begin)
	old, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("no %q and %q in %s", begin, end, configurationDoc)
	}
	lists := flagLists()
	if old == lists {
		return
	}
	if !*rewrite {
		t.Fatalf("the lists in %s are not those of the program: go test ./cmd/vigil -run Documentation -rewrite", configurationDoc)
	}
	if err := os.WriteFile(configurationDoc, []byte(head+begin+lists+end+tail),
		0o644); err != nil {
		t.Fatal(err)
	}
}

// fileKeys are the keys of flags that are in a group of the configuration file.
func fileKeys() map[string]string {
	keys := map[string]string{}
	for _, group := range slices.Sorted(maps.Keys(groupKeys)) {
		for key, name := range groupKeys[group] {
			keys[name] = group + "." + key
		}
	}
	return keys
}

// flagLists has the flags by section, each with its default, its key if that is in a group of the
// configuration file, and its effect.
func flagLists() string {
	var b strings.Builder
	keys := fileKeys()
	o := newOptions()
	o.config = o.config.WithDefaults()
	var idle []string
	for _, sec := range o.sections {
		fmt.Fprintf(&b, "\n### %s\n\n", sec.title)
		for _, f := range sec.flags {
			effect, value := f.help, f.preset()
			if f.noEffect != "" {
				idle = append(idle, "`--"+f.name+"`")
				continue
			}
			if value == "" && f.isBool {
				value = "false"
			}
			if value != "" {
				value = "=" + value
			}
			fmt.Fprintf(&b, "- `--%s%s`", f.name, value)
			if key := keys[f.name]; key != "" {
				fmt.Fprintf(&b, " (`%s`)", key)
			}
			fmt.Fprintf(&b, ": %s\n", effect)
		}
	}
	fmt.Fprintf(&b, "\n### Without an effect\n\nVigil accepts these, and `vigil help FLAG` says why it has "+
		"no use for them: %s.\n", strings.Join(idle, ", "))
	return b.String() + "\n"
}
