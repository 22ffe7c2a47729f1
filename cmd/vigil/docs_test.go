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
	"write the tables of flags into docs/operations/configuration.md")

const configurationDoc = "../../docs/operations/configuration.md"

// TestDocumentation: the tables of flags in the documentation are those of the program. With
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
	tables := flagTables()
	if old == tables {
		return
	}
	if !*rewrite {
		t.Fatalf("the tables in %s are not those of the program: go test ./cmd/vigil -run Documentation -rewrite", configurationDoc)
	}
	if err := os.WriteFile(configurationDoc, []byte(head+begin+tables+end+tail),
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

func flagTables() string {
	var b strings.Builder
	keys := fileKeys()
	o := newOptions()
	o.config = o.config.WithDefaults()
	for _, sec := range o.sections {
		fmt.Fprintf(&b, "\n### %s\n\n| flag | default | environment | key in the file | effect |\n|---|---|---|---|---|\n", sec.title)
		for _, f := range sec.flags {
			effect, key, value := f.help, "`"+f.name+"`", f.preset()
			if f.noEffect != "" {
				effect = "none: " + f.noEffect
			}
			if k := keys[f.name]; k != "" {
				key = "`" + k + "`"
			}
			variable := f.variable()
			if variable != "" {
				variable = "`" + variable + "`"
			}
			if f.name == "config-file" || f.name == "version" {
				key = ""
			}
			if value == "" && f.isBool {
				value = "false"
			}
			if value != "" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&b, "| `--%s` | %s | %s | %s | %s |\n", f.name, value, variable, key,
				strings.ReplaceAll(effect, "|", `\|`))
		}
	}
	return b.String() + "\n"
}
