// Package decode shows the bytes of a value as text: JSON, YAML, protobuf without a schema, objects
// of Kubernetes, gzip, hex. Values come from strangers.
//
//  1. The output of each view is at most MaxText bytes, and the time is linear in the input and the
//     output: depth, fields and decompressed bytes are bounded.
//  2. A text is valid UTF-8. It may have control characters, which the display must escape.
package decode

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Limits of a view.
const (
	MaxText         = 256 << 10
	maxDepth        = 24
	maxFields       = 20_000
	maxDecompressed = 1 << 20
	maxHex          = 8 << 10
)

// View shows a value in one form.
type View struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Cut is set if the text does not show the whole value.
	Cut bool `json:"cut,omitempty"`
}

// Views returns the forms in which a value can be shown, the most informative first. The last is
// always hex.
func Views(value []byte) []View { return views(value, true) }

func views(value []byte, outer bool) []View {
	var out []View
	add := func(name, text string, cut bool) {
		if len(text) > MaxText {
			text, cut = strings.ToValidUTF8(text[:MaxText], ""), true
		}
		out = append(out, View{name, text, cut})
	}
	if outer {
		if inner, cut, ok := gunzip(value); ok {
			for _, v := range views(inner, false) {
				out = append(out, View{"gzip: " + v.Name, v.Text, v.Cut || cut})
			}
		}
	}
	if text, cut, ok := kubernetes(value); ok {
		add("Kubernetes", text, cut)
	}
	if tree, ok := parseJSON(value); ok {
		var b bytes.Buffer
		if json.Indent(&b, bytes.TrimSpace(value), "", "  ") == nil {
			add("JSON", strings.ToValidUTF8(b.String(), "\ufffd"), false)
		}
		w := &writer{}
		w.yaml(tree, 0)
		add("YAML", w.b.String(), w.full)
	}
	if utf8.Valid(value) {
		add("text", string(value), false)
	} else if text, cut, ok := protobuf(value); ok {
		add("protobuf", text, cut)
	}
	shown := value[:min(len(value), maxHex)]
	add("hex", hex.Dump(shown), len(shown) < len(value))
	return out
}

// gunzip decompresses a value. cut is set if there is more data.
func gunzip(value []byte) (inner []byte, cut, ok bool) {
	if len(value) < 18 || value[0] != 0x1f || value[1] != 0x8b {
		return nil, false, false
	}
	r, err := gzip.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, false, false
	}
	inner, err = io.ReadAll(io.LimitReader(r, maxDecompressed+1))
	if err != nil {
		return nil, false, false
	}
	if len(inner) > maxDecompressed {
		return inner[:maxDecompressed], true, true
	}
	return inner, false, true
}

// parseJSON decodes a JSON object or array. Numbers keep their spelling.
func parseJSON(value []byte) (tree any, ok bool) {
	t := bytes.TrimSpace(value)
	if len(t) < 2 || t[0] != '{' && t[0] != '[' || len(t) > MaxText || depth(t) > maxDepth {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(t))
	d.UseNumber()
	if d.Decode(&tree) != nil {
		return nil, false
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, false
	}
	return tree, true
}

// depth returns a lower limit of how deeply the JSON brackets are nested.
func depth(b []byte) (deepest int) {
	n, quoted := 0, false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			n++
			deepest = max(deepest, n)
		case c == '}' || c == ']':
			n--
		}
	}
	return deepest
}

// writer collects a text of up to MaxText bytes.
type writer struct {
	b    strings.Builder
	full bool
}

func (w *writer) line(indent int, format string, args ...any) {
	if w.full || w.b.Len() > MaxText {
		w.full = true
		return
	}
	w.b.WriteString(strings.Repeat("  ", indent))
	fmt.Fprintf(&w.b, format, args...)
	w.b.WriteByte('\n')
}
