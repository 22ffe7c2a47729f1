package decode

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// plain matches texts that need no quotation marks in YAML.
var plain = regexp.MustCompile(`^[A-Za-z/][A-Za-z0-9_./-]*$`)

// words are words with a special meaning in YAML.
var words = []string{"true", "false", "null", "yes", "no", "on", "off", "y", "n"}

// scalar formats a JSON value other than a collection as YAML.
func scalar(v any) string {
	if s, ok := v.(string); ok && plain.MatchString(s) &&
		!slices.Contains(words, strings.ToLower(s)) {
		return s
	}
	b, err := json.Marshal(v) // JSON is YAML
	if err != nil {
		return "null"
	}
	return string(b)
}

// yaml writes a decoded JSON value. Decoding has already limited the depth.
func (w *writer) yaml(v any, indent int) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			w.entry(scalar(k)+":", v[k], indent)
		}
	case []any:
		for _, x := range v {
			w.entry("-", x, indent)
		}
	default:
		w.line(indent, "%s", scalar(v))
	}
}

// entry writes the key of a map or the dash of a list, and the value.
func (w *writer) entry(before string, v any, indent int) {
	switch x := v.(type) {
	case map[string]any:
		if len(x) == 0 {
			w.line(indent, "%s {}", before)
			return
		}
	case []any:
		if len(x) == 0 {
			w.line(indent, "%s []", before)
			return
		}
	default:
		w.line(indent, "%s %s", before, scalar(v))
		return
	}
	w.line(indent, "%s", before)
	w.yaml(v, indent+1)
}
