package keyview

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"vigil/cmd/vigilctl/screen"
)

// maxStructure limits the size in bytes of values that are compared by structure.
const maxStructure = 256 << 10

// structures parses two values into maps and lists. It succeeds only if both are JSON or YAML with
// such a structure.
func structures(old, new []byte) (a, b any, ok bool) {
	if len(old) > maxStructure || len(new) > maxStructure {
		return nil, nil, false
	}
	a, b = structure(old), structure(new)
	return a, b, a != nil && reflect.TypeOf(a) == reflect.TypeOf(b)
}

// structure parses a value into a map or a list. It returns nil if the value is neither, or if two
// equal results could come from different values.
func structure(value []byte) any {
	var doc, second yaml.Node
	in := yaml.NewDecoder(bytes.NewReader(value)) // JSON is YAML
	if in.Decode(&doc) != nil || in.Decode(&second) != io.EOF || !exact(&doc) {
		return nil
	}
	var v any
	if doc.Decode(&v) != nil {
		return nil
	}
	switch v.(type) {
	case map[string]any, []any:
		return v
	}
	return nil
}

// exact reports whether a float can hold each number with all its digits.
func exact(n *yaml.Node) bool {
	const digits = 15
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!float" && len(n.Value) > digits {
		return false
	}
	return !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !exact(c) })
}

// compareStructures returns a line for each difference: + added, - removed, ~ changed.
func compareStructures(path string, a, b any) (lines []string) {
	if x, ok := a.(map[string]any); ok {
		if y, ok := b.(map[string]any); ok {
			keys := maps.Clone(x)
			maps.Copy(keys, y)
			for _, k := range slices.Sorted(maps.Keys(keys)) {
				at := strings.TrimPrefix(path+"."+k, ".")
				old, had := x[k]
				new, has := y[k]
				lines = append(lines, comparePart(at, old, had, new, has)...)
			}
			return lines
		}
	}
	if x, ok := a.([]any); ok {
		if y, ok := b.([]any); ok {
			for i := range max(len(x), len(y)) {
				var old, new any
				if i < len(x) {
					old = x[i]
				}
				if i < len(y) {
					new = y[i]
				}
				lines = append(lines,
					comparePart(fmt.Sprintf("%s[%d]", path, i), old, i < len(x), new,
						i < len(y))...)
			}
			return lines
		}
	}
	if reflect.DeepEqual(a, b) {
		return nil
	}
	return []string{fmt.Sprintf("~ %s: %s, was %s", path, inline(b), inline(a))}
}

func comparePart(path string, old any, had bool, new any, has bool) []string {
	switch {
	case !had:
		return []string{"+ " + path + ": " + inline(new)}
	case !has:
		return []string{"- " + path + ": " + inline(old)}
	}
	return compareStructures(path, old, new)
}

// inline returns a part of a value on one line.
func inline(v any) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(v) != nil {
		return screen.Safe(fmt.Sprint(v)) // a YAML map whose keys are not strings
	}
	return screen.Safe(strings.TrimSuffix(b.String(), "\n"))
}
