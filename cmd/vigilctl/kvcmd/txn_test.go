package kvcmd

import (
	"slices"
	"strings"
	"testing"

	"vigil/cmd/vigilctl/cli"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		`put a b`:                        {"put", "a", "b"},
		`put "a b" 'c "d"' --prev-kv`:    {"put", "a b", `c "d"`, "--prev-kv"},
		`put "\x00\xff" "line\nbreak"  `: {"put", "\x00\xff", "line\nbreak"},
		``:                               nil,
		`put '' ""`:                      {"put", "", ""},
	} {
		if got, err := splitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
	if _, err := splitWords(`put "\q"`); err == nil {
		t.Error("an escape that does not exist is taken")
	}
}

func TestParseCompare(t *testing.T) {
	c := func(target etcdserverpb.Compare_CompareTarget, result etcdserverpb.Compare_CompareResult,
		fill func(c *etcdserverpb.Compare)) *etcdserverpb.Compare {
		c := &etcdserverpb.Compare{Key: []byte("a b"), Target: target, Result: result}
		fill(c)
		return c
	}
	for line, want := range map[string]*etcdserverpb.Compare{
		`mod("a b") = "7"`: c(etcdserverpb.Compare_MOD, etcdserverpb.Compare_EQUAL,
			func(c *etcdserverpb.Compare) { c.TargetUnion = &etcdserverpb.Compare_ModRevision{ModRevision: 7} }),
		`create("a b") > "0"`: c(etcdserverpb.Compare_CREATE, etcdserverpb.Compare_GREATER,
			func(c *etcdserverpb.Compare) { c.TargetUnion = &etcdserverpb.Compare_CreateRevision{} }),
		`ver("a b") < "2"`: c(etcdserverpb.Compare_VERSION, etcdserverpb.Compare_LESS,
			func(c *etcdserverpb.Compare) { c.TargetUnion = &etcdserverpb.Compare_Version{Version: 2} }),
		`value("a b") != "x y"`: c(etcdserverpb.Compare_VALUE, etcdserverpb.Compare_NOT_EQUAL,
			func(c *etcdserverpb.Compare) { c.TargetUnion = &etcdserverpb.Compare_Value{Value: []byte("x y")} }),
		`lease("a b") = "ff"`: c(etcdserverpb.Compare_LEASE, etcdserverpb.Compare_EQUAL,
			func(c *etcdserverpb.Compare) { c.TargetUnion = &etcdserverpb.Compare_Lease{Lease: 255} }),
	} {
		if got, err := parseCompare(line); err != nil || !proto.Equal(got, want) {
			t.Errorf("%s: %v, %v", line, got, err)
		}
	}
	for _, line := range []string{``, `mod`, `mod("a" = "1"`, `mod("a") = 1`, `mod("a") = "x"`,
		`mod("a") >= "1"`, `size("a") = "1"`,
		`mod("a") = "0" && mod("b") = "77"`, `mod("a") = "0" mod("b") = "77"`, `mod("a") = "0"x`,
		`mod("a") = "0" "1"`, `mod("a") = "0";`} {
		if _, err := parseCompare(line); err == nil {
			t.Errorf("%q is taken", line)
		}
	}
}

// FuzzTxn has a transaction be read of anything: it is refused or makes a request that can be
// encoded.
func FuzzTxn(f *testing.F) {
	f.Add("mod(\"k\") = \"7\"\n\nput k 'v'\ndel --prefix k\n\nget k --rev=3\n\n")
	f.Add("\n\n\n")
	f.Add("val(\"\\x00\") < \"\"\n\nget \"a\" b --from-key\n\n\n")
	f.Fuzz(func(t *testing.T, input string) {
		env := &cli.Env{Stdin: strings.NewReader(input)}
		r, err := readTxn(t.Context(), env, false)
		if err != nil {
			return
		}
		if _, err := proto.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}
