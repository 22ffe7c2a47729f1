package show

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// ToYAML returns JSON as YAML, with the same fields in the same order.
func ToYAML(j []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(escape(j), &doc); err != nil { // JSON is YAML
		return nil, err
	}
	toBlocks(&doc)
	return yaml.Marshal(&doc)
}

// escape returns JSON without the characters that only JSON allows in a string, or that YAML takes
// for the end of a line.
func escape(j []byte) []byte {
	plain := func(r rune) bool {
		return r < 0x7f || r >= 0xa0 && r != '\u2028' && r != '\u2029' &&
			r != '\ufeff' && r&^1 != 0xfffe
	}
	if bytes.IndexFunc(j, func(r rune) bool { return !plain(r) }) < 0 {
		return j
	}
	out := make([]byte, 0, len(j)+16)
	for _, r := range string(j) {
		if plain(r) {
			out = utf8.AppendRune(out, r)
		} else {
			out = fmt.Appendf(out, "\\u%04x", r)
		}
	}
	return out
}

// toBlocks removes the brackets and quotation marks of JSON, where YAML needs none.
func toBlocks(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		toBlocks(c)
	}
}
