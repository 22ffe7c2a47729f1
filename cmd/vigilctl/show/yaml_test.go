package show

import (
	"encoding/json"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestYAMLOfAnyText: JSON allows characters unescaped that YAML does not.
func TestYAMLOfAnyText(t *testing.T) {
	for _, text := range []string{"a\x7fb", "a\u0080b", "a\ufffeb", "a\uffffb", "a\u2028b",
		"\ufeff", "\x00\x1b", "true", "12", "a\nb ", "😀"} {
		j, err := jsonText(text)
		if err != nil {
			t.Fatal(err)
		}
		y, err := ToYAML(j)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		var back map[string]any
		if err := yaml.Unmarshal(y, &back); err != nil || back["Name"] != text {
			t.Errorf("%q is %q: %v\n%s", text, back["Name"], err, y)
		}
	}
}

func jsonText(text string) ([]byte, error) { return json.Marshal(struct{ Name string }{text}) }
