package ctl

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

var grantedLease = regexp.MustCompile(`lease ([0-9a-f]{16}) granted`)

// known puts the ids of leases in the place of their names.
func (r *runner) known(line string) string {
	for i := len(r.leases) - 1; i >= 0; i-- {
		line = strings.ReplaceAll(line, leaseName(i), r.leases[i])
	}
	return line
}

// named puts the names of leases in the place of their ids, which are new at every run.
func (r *runner) named(out string) string {
	for _, m := range grantedLease.FindAllStringSubmatch(out, -1) {
		if !slices.Contains(r.leases, m[1]) {
			r.leases = append(r.leases, m[1])
		}
	}
	for i, id := range r.leases {
		n, _ := strconv.ParseUint(id, 16, 64)
		out = strings.ReplaceAll(out, id, leaseName(i))
		out = strings.ReplaceAll(out, strconv.FormatUint(n, 10), leaseName(i))
	}
	return out
}

func leaseName(i int) string { return fmt.Sprintf("LEASE%d", i+1) }
