package show

import "go.yaml.in/yaml/v3"

// ToYAML returns JSON as YAML, with the same fields in the same order.
func ToYAML(j []byte) ([]byte, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(j, &doc); err != nil { // JSON is YAML
		return nil, err
	}
	toBlocks(&doc)
	return yaml.Marshal(&doc)
}

// toBlocks removes the brackets and quotation marks of JSON, where YAML needs none.
func toBlocks(n *yaml.Node) {
	n.Style = 0
	for _, c := range n.Content {
		toBlocks(c)
	}
}
