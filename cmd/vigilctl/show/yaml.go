package show

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// ToYAML converts JSON to YAML, with the same fields in the same order.
func ToYAML(j []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(escape(j), &doc); err != nil { // JSON is YAML
		return nil, err
	}
	toBlocks(&doc)
	return yaml.Marshal(&doc)
}

// escape escapes characters that only JSON allows in a string, or that end a line in YAML.
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

// toBlocks removes JSON's brackets and quotation marks where YAML does not need them.
func toBlocks(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		toBlocks(c)
	}
}
