package main

import (
	"slices"
	"testing"

	"vigil/tools/bench/suite"
)

// TestChoose: with etcd, a pattern leaves out what only Vigil has.
func TestChoose(t *testing.T) {
	has := func(chosen []suite.Scenario, name string) bool {
		return slices.ContainsFunc(chosen, func(s suite.Scenario) bool { return s.Name == name })
	}
	for _, c := range []struct {
		list             string
		etcd             bool
		pipelined, store bool
		fails            bool
	}{
		{"all", true, true, false, false},
		{"all", false, true, true, false},
		{"put-*", true, true, false, false},
		{"put-archive,put-pipelined", false, true, true, false},
		{"put-archive", true, false, false, true},
		{"put-pipelined,none", false, false, false, true},
		{"[", false, false, false, true},
	} {
		chosen, err := choose(c.list, c.etcd)
		if (err != nil) != c.fails || has(chosen, "put-pipelined") != c.pipelined ||
			has(chosen, "put-archive") != c.store {
			t.Errorf("%q, etcd %v: %v, %d scenarios", c.list, c.etcd, err, len(chosen))
		}
	}
}
