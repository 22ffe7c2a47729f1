package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"vigil/internal/spelling"
	"vigil/server"
)

// maxConfigFile limits the size of a configuration file, in bytes.
const maxConfigFile = 1 << 20

// groupKeys are the keys of etcd's configuration file that contain a group of keys, with the flag
// of each key in the group. Any other key is the name of its flag.
var groupKeys = map[string]map[string]string{
	"client-transport-security": {
		"cert-file": "cert-file", "key-file": "key-file", "client-cert-file": "client-cert-file",
		"client-key-file":  "client-key-file",
		"client-cert-auth": "client-cert-auth", "trusted-ca-file": "trusted-ca-file",
		"auto-tls":         "auto-tls",
		"allowed-hostname": "client-cert-allowed-hostname", "crl-file": "client-crl-file",
	},
	"peer-transport-security": {
		"cert-file": "peer-cert-file", "key-file": "peer-key-file",
		"client-cert-file": "peer-client-cert-file", "client-key-file": "peer-client-key-file",
		"client-cert-auth": "peer-client-cert-auth", "trusted-ca-file": "peer-trusted-ca-file",
		"auto-tls":   "peer-auto-tls",
		"allowed-cn": "peer-cert-allowed-cn", "allowed-hostname": "peer-cert-allowed-hostname",
		"crl-file":                     "peer-crl-file",
		"skip-client-san-verification": "peer-skip-client-san-verification",
	},
	"socket-options": {"reuse-port": "socket-reuse-port",
		"reuse-address": "socket-reuse-address"},
	"discovery-config": {"token": "discovery-token", "client": "discovery-config.client"},
	"discovery-config.client": {
		"endpoints": "discovery-endpoints", "dial-timeout": "discovery-dial-timeout",
		"request-timeout":   "discovery-request-timeout",
		"keepalive-time":    "discovery-keepalive-time",
		"keepalive-timeout": "discovery-keepalive-timeout",
		"secure":            "discovery-config.client.secure",
		"auth":              "discovery-config.client.auth",
	},
	"discovery-config.client.secure": {
		"cert": "discovery-cert", "key": "discovery-key", "cacert": "discovery-cacert",
		"insecure-transport":       "discovery-insecure-transport",
		"insecure-skip-tls-verify": "discovery-insecure-skip-tls-verify",
	},
	"discovery-config.client.auth": {"username": "discovery-user",
		"password": "discovery-password"},
}

// oldKeys are keys in etcd's example configuration files that etcd ignores.
var oldKeys = []string{"discovery", "discovery-fallback", "discovery-proxy", "enable-v2", "proxy",
	"proxy-dial-timeout", "proxy-failure-wait",
	"proxy-read-timeout", "proxy-refresh-interval", "proxy-write-timeout"}

// file reads the configuration file.
func (p *parser) file(path string) {
	root, err := readYAML(path)
	if err != nil {
		p.fail(fmt.Errorf("--config-file: %w", server.WithNextStep(err)))
		return
	}
	if root != nil {
		p.setMapping(path, root, nil)
	}
}

// readYAML returns the mapping in a file, nil for an empty file.
func readYAML(path string) (*yaml.Node, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxConfigFile {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, info.Size(), maxConfigFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	var doc, more yaml.Node
	documents := yaml.NewDecoder(bytes.NewReader(b))
	err = documents.Decode(&doc)
	if err == nil {
		err = documents.Decode(&more)
		if err == nil {
			return nil, fmt.Errorf("%s:%d: a second document: a configuration is one document, without a line --- in it", path, more.Line)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return nil, nil
	}
	root := doc.Content[0]
	if err := resolveAliases(path, root); err != nil {
		return nil, err
	}
	if root.Kind == yaml.MappingNode {
		return root, nil
	}
	return nil, fmt.Errorf("%s:%d: want keys and values", path, doc.Content[0].Line)
}

// resolveAliases replaces each alias with the value of its anchor, and adds the keys of a merged
// mapping that are not set. It visits nothing below an alias again, so that aliases of aliases
// cannot multiply the work.
func resolveAliases(path string, n *yaml.Node) error {
	for i, child := range n.Content {
		if child.Kind == yaml.AliasNode {
			target := child.Alias
			n.Content[i] = &yaml.Node{Kind: target.Kind, Tag: target.Tag, Value: target.Value,
				Style: target.Style, Content: target.Content, Line: child.Line}
			continue // an anchor comes before its aliases, so its own value is resolved
		}
		if err := resolveAliases(path, child); err != nil {
			return err
		}
	}
	if n.Kind == yaml.MappingNode {
		return mergeKeys(path, n)
	}
	return nil
}

// mergeKeys replaces << with those keys of its mapping that are not set.
func mergeKeys(path string, n *yaml.Node) error {
	set := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		set[n.Content[i].Value] = true
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, merged := n.Content[i], n.Content[i+1]
		if key.Tag != "!!merge" {
			continue
		}
		if merged.Kind != yaml.MappingNode {
			return fmt.Errorf("%s:%d: <<: want keys and values", path, key.Line)
		}
		var rest []*yaml.Node
		for j := 0; j+1 < len(merged.Content); j += 2 {
			if !set[merged.Content[j].Value] {
				rest = append(rest, merged.Content[j], merged.Content[j+1])
			}
		}
		n.Content = slices.Concat(n.Content[:i], rest, n.Content[i+2:])
		i += len(rest) - 2
	}
	return nil
}

// setMapping sets the options in a mapping. names has the flag of each key; it is nil for the whole
// file.
func (p *parser) setMapping(path string, m *yaml.Node, names map[string]string) {
	seen := map[string]int{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		// etcd's decoder ignores the letter case of keys too.
		key, value := strings.ToLower(m.Content[i].Value), m.Content[i+1]
		where := fmt.Sprintf("%s:%d", path, m.Content[i].Line)
		if first := seen[key]; first > 0 {
			p.fail(fmt.Errorf("%s: %s is set already in line %d", where, key, first))
			continue
		}
		seen[key] = m.Content[i].Line
		name := key
		if names != nil {
			name = names[key]
		}
		o, group := p.byName[name], groupKeys[name]
		if strings.Contains(key, ".") {
			group = nil // only a group inside another group has such a name
		}
		switch err := errRemoved(name, key); {
		case err != nil:
			p.fail(fmt.Errorf("%s: %w", where, err))
		case value.Tag == "!!null":
		case names == nil && slices.Contains(oldKeys, key):
			p.o.unusedKeys = append(p.o.unusedKeys, where+": "+key)
		case group != nil && value.Kind == yaml.MappingNode:
			p.setMapping(path, value, group)
		case group != nil:
			p.fail(fmt.Errorf("%s: %s: want keys and values", where, key))
		case o == nil || name == "config-file" || name == "version":
			p.fail(fmt.Errorf("%s: there is no key %s%s", where, key,
				didYouMean("", spelling.Nearest(key, p.keyNames(names)))))
		default:
			text, err := scalar(o, value)
			if err != nil {
				p.fail(fmt.Errorf("%s: %s: %w", where, key, err))
				continue
			}
			p.setOption(o, []string{text}, origin{"file", where})
		}
	}
}

// keyNames returns the keys of a group, or of the whole file if names is nil.
func (p *parser) keyNames(names map[string]string) []string {
	if names != nil {
		return slices.Sorted(maps.Keys(names))
	}
	list := slices.DeleteFunc(p.o.flagNames(),
		func(name string) bool { return name == "config-file" || name == "version" })
	for _, group := range slices.Sorted(maps.Keys(groupKeys)) {
		if !strings.Contains(group, ".") {
			list = append(list, group)
		}
	}
	return list
}

// scalar converts a value in the file to its form on the command line.
func scalar(o *option, v *yaml.Node) (string, error) {
	switch v.Kind {
	case yaml.ScalarNode:
		if o.isBool {
			var b bool
			if v.Decode(&b) == nil { // yes, no, on and off are booleans too
				return strconv.FormatBool(b), nil
			}
			return v.Value, nil
		}
		if _, err := strconv.ParseInt(v.Value, 10, 64); err == nil && o.nanoseconds {
			return v.Value + "ns", nil
		}
		if f := 0.0; v.Tag == "!!float" && o.isNumber && v.Decode(&f) == nil &&
			f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return strconv.FormatFloat(f, 'f', 0, 64), nil // 1e3 is a whole number
		}
		return v.Value, nil
	case yaml.SequenceNode:
		var parts []string
		for _, e := range v.Content {
			if e.Kind != yaml.ScalarNode {
				return "", fmt.Errorf("line %d: want a list of plain values", e.Line)
			}
			parts = append(parts, e.Value)
		}
		return strings.Join(parts, ","), nil
	}
	return "", errors.New("want a plain value")
}
