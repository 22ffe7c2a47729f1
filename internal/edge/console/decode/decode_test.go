package decode

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

func message(parts ...any) (b []byte) {
	for i := 0; i < len(parts); i += 2 {
		n := protowire.Number(parts[i].(int))
		switch v := parts[i+1].(type) {
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
		}
	}
	return b
}

func zipped(b []byte) []byte {
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	w.Write(b)
	w.Close()
	return z.Bytes()
}

func pod() []byte {
	meta := message(1, "web-1", 3, "default", 8, message(1, 1_700_000_000), 11,
		message(1, "app", 2, "web"))
	return append([]byte("k8s\x00"),
		message(1, message(1, "v1", 2, "Pod"), 2, message(1, meta, 2, message(3, "always", 5, 30)),
			3, "", 4, "")...)
}

func names(list []View) string {
	var out []string
	for _, v := range list {
		out = append(out, v.Name)
	}
	return strings.Join(out, ",")
}

func TestViews(t *testing.T) {
	for _, c := range []struct {
		name, views, first string
		value              []byte
	}{
		{"empty", "text,hex", "", nil},
		{"text", "text,hex", "hello\n", []byte("hello\n")},
		{"JSON", "JSON,YAML,text,hex", "{\n  \"a\": [\n    1.50,\n    \"no\"\n  ]\n}",
			[]byte(`{"a":[1.50,"no"]}`)},
		{"two texts of JSON", "text,hex", "{} {}", []byte("{} {}")},
		{"message", "protobuf,hex", "1: 7\n2 {\n  1: \"x\"\n  3: 300\n}\n4: 0xff00fe\n",
			message(1, 7, 2, message(1, "x", 3, 300), 4, []byte{255, 0, 254})},
		{"pod", "Kubernetes,hex",
			"apiVersion: v1\nkind: Pod\nmetadata:\n  name: web-1\n  namespace: default\n" +
				"  creationTimestamp: 2023-11-14T22:13:20Z\n  labels: app = web\nspec (field 2) {\n  3: \"always\"\n  5: 30\n}\n", pod()},
		{"gzip", "gzip: JSON,gzip: YAML,gzip: text,gzip: hex,hex", "{\n  \"a\": null\n}",
			zipped([]byte(`{"a":null}`))},
		{"no gzip", "hex", "", append([]byte{0x1f, 0x8b}, bytes.Repeat([]byte{255}, 30)...)},
	} {
		got := Views(c.value)
		if names(got) != c.views {
			t.Errorf("%s: views %s, want %s", c.name, names(got), c.views)
		} else if c.first != "" && got[0].Text != c.first {
			t.Errorf("%s: %q, want %q", c.name, got[0].Text, c.first)
		}
	}
	yaml := Views([]byte(`{"b":{"c":[{"x":"yes"},[]],"d":"a: b"},"a":true,"e":{}}`))[1].Text
	if want := "a: true\nb:\n  c:\n    -\n      x: \"yes\"\n    - []\n  d: \"a: b\"\ne: {}\n"; yaml != want {
		t.Errorf("YAML %q, want %q", yaml, want)
	}
}

// checkBounds checks the invariants of the package.
func checkBounds(t *testing.T, value []byte) {
	t.Helper()
	list := Views(value)
	if len(list) == 0 || !strings.HasSuffix(list[len(list)-1].Name, "hex") {
		t.Fatalf("the last view is not hex: %s", names(list))
	}
	for _, v := range list {
		if len(v.Text) > MaxText {
			t.Errorf("%s has %d bytes, at most %d", v.Name, len(v.Text), MaxText)
		}
		if !utf8.ValidString(v.Text) {
			t.Errorf("%s is not UTF-8", v.Name)
		}
	}
}

func TestLargeAndDeepValuesAreBounded(t *testing.T) {
	deep := message(1, 300)
	for range 5000 {
		deep = append(message(1, deep), 8, 200, 1) // not printable
	}
	for name, value := range map[string][]byte{
		"a megabyte of one letter": bytes.Repeat([]byte("x"), 1<<20),
		"a megabyte of brackets":   bytes.Repeat([]byte("["), 1<<20),
		"deep JSON": []byte(strings.Repeat("[", 20_000) +
			strings.Repeat("]", 20_000)),
		"a list that grows as YAML": []byte("[" +
			strings.Repeat("[[[[[[[[[[[[1]]]]]]]]]]]],", 9000) + "1]"),
		"a gigabyte in a megabyte":     zipped(make([]byte, 64<<20)),
		"gzip in gzip":                 zipped(zipped([]byte("x"))),
		"a message of a million parts": bytes.Repeat([]byte{8, 200, 1}, 300_000),
		"a deep message":               deep,
		"Kubernetes without an end":    []byte("k8s\x00\x0a\xff\xff\xff\xff\x0f"),
		"Kubernetes of nothing":        []byte("k8s\x00"),
	} {
		t.Run(name, func(t *testing.T) { checkBounds(t, value) })
	}
}

func FuzzViews(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":"c"}]}`))
	f.Add(pod())
	f.Add(zipped(pod()))
	f.Add([]byte{0xff, 0xfe, 8, 1})
	f.Fuzz(func(t *testing.T, value []byte) { checkBounds(t, value) })
}
