package main

import (
	"fmt"
	"regexp"
	"strings"
)

// option is a flag of vigil.
type option struct{ name, argument, purpose string }

var optionLine = regexp.MustCompile(`^  --([a-z0-9-]+)(?: ([A-Z]\S*))?(?: \(default .*\))?$`)

// options returns the flags that the help of vigil lists.
func options(help string) []option {
	var out []option
	lines := strings.Split(help, "\n")
	for i, line := range lines {
		if m := optionLine.FindStringSubmatch(line); m != nil && i+1 < len(lines) {
			out = append(out, option{m[1], m[2], strings.TrimSpace(lines[i+1])})
		}
	}
	return out
}

// completeVigil returns the completions of vigil by shell. Arguments are completed as files, which
// is right for all that are not typed by hand anyway.
func completeVigil(help string) map[string][]byte {
	var names, fish, zsh strings.Builder
	for _, o := range options(help) {
		fmt.Fprintf(&names, " --%s", o.name)
		takes, spec := "", ""
		if o.argument != "" {
			takes = " -r"
			spec = strings.NewReplacer("'", `'\''`, "[", "", "]",
				"").Replace(":" + strings.ReplaceAll(o.argument, ":", `\:`) + ":_files")
		}
		fmt.Fprintf(&fish, "complete -c vigil -l %s%s -d '%s'\n", o.name, takes,
			strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(o.purpose))
		purpose := strings.NewReplacer(`\`, `\\`, "[", `\[`, "]", `\]`, ":", `\:`, "'",
			`'\''`).Replace(o.purpose)
		fmt.Fprintf(&zsh, " \\\n  '--%s[%s]%s'", o.name, purpose, spec)
	}
	return map[string][]byte{
		"bash": []byte(`# completion of vigil for bash
_vigil() {
	local current=${COMP_WORDS[COMP_CWORD]}
	COMPREPLY=()
	case $current in
	-*) COMPREPLY=($(compgen -W "` + strings.TrimSpace(names.String()) + `" -- "$current")) ;;
	*) [ "$COMP_CWORD" != 1 ] || COMPREPLY=($(compgen -W config -- "$current")) ;;
	esac
}
complete -o default -F _vigil vigil
`),
		"fish": []byte("# completion of vigil for fish\ncomplete -c vigil -n __fish_is_first_arg -a config -d 'print the effective configuration'\n" + fish.String()),
		"zsh": []byte("#compdef vigil\n_arguments" + zsh.String() +
			" \\\n  '1::command:(config)'\n"),
	}
}
