// Package allocs has a table of the allocations of hot paths. Tests compare the program with it.
//
// A package measures its hot functions by Test, which compares with the rows of the package, and by
// Benchmark, which also shows their time. `go test -run Allocations` finds the tests.
package allocs

import (
	"runtime/debug"
	"strings"
	"testing"
)

// Row is the number of allocations that one call of a function may make.
type Row struct {
	// What is the folder of the package or its last part, a colon, and the name of the measured
	// call.
	What string
	// Most is the number of allocations. Spare is the accepted excess, for work shared by several
	// calls.
	Most, Spare float64
}

// Table has all measured functions. A change that needs more must say why here.
var Table = []Row{
	// Whole calls at a member, from the first byte of the request to the last one of the answer.
	// Concurrent writes also allocate for their groups, whose number depends on the machine.
	{"server: get", 8, 0.5},
	{"server: serializable get", 8, 0.5},
	{"server: range of 500 keys", 57.6, 1.5},
	{"server: put", 13.2, 0.75},
	{"server: put alone", 70, 4},
	{"server: transaction", 20.5, 1},
	{"server: deletion", 14.2, 1},
	{"server: lease grant", 14.8, 1},
	{"server: keep-alive", 0, 0.5},

	// The functions at the top of the profiles of puts, gets, ranges and events.
	{"h2: 100 requests, answered by the reader", 200, 10},
	{"h2: output of 100 streams", 11, 5},
	{"transport: header of a request", 0, 0},
	{"transport: 100 responses for watchers", 1, 1},
	{"transport: small answer", 0, 0},
	{"wire: decode a put", 1, 0},
	{"wire: decode a range", 1, 0},
	{"wire: decode a transaction", 6, 0},
	{"wire: encode an answer of 500 keys", 0, 0},
	{"index: get", 0, 0},
	{"mvcc: get", 3, 0},
	{"mvcc: range of 500 keys", 19, 1},
	{"mvcc: 64 puts and a commit", 3, 2},
	{"history: 100 records and a commit", 2, 1},
	{"wal: append 16 entries", 0, 0},
	{"watch: event for 1,000 watchers", 2, 2},
	{"fsm: apply 100 puts", 115, 5},
}

// Rows returns the rows of a package, without its name.
func Rows(pkg string) (rows []Row) {
	for _, r := range Table {
		if what, ok := strings.CutPrefix(r.What, pkg+": "); ok {
			rows = append(rows, Row{what, r.Most, r.Spare})
		}
	}
	return rows
}

// Check compares a measured number with a row.
func (r Row) Check(t *testing.T, got float64) {
	t.Helper()
	switch {
	case got > r.Most+r.Spare:
		t.Errorf("%s allocates %.2f times, the table has %.2f (and %.2f to spare)", r.What, got,
			r.Most, r.Spare)
	case got < r.Most-1:
		t.Logf("%s allocates %.2f times, the table has %.2f: lower it", r.What, got, r.Most)
	default:
		t.Logf("%s allocates %.2f times", r.What, got)
	}
}

// Test measures the functions of a package, all of which must be in the table.
func Test(t *testing.T, pkg string, functions map[string]func()) {
	if race {
		t.Skip("the race detector allocates memory")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // it empties pools
	rows := Rows(pkg)
	for _, r := range rows {
		f, ok := functions[r.What]
		if !ok {
			t.Fatalf("%s is not measured", r.What)
		}
		// Use the smallest of several measurements: other goroutines may allocate too.
		got := testing.AllocsPerRun(20, f)
		for try := 0; try < 10 && got > r.Most; try++ {
			got = min(got, testing.AllocsPerRun(20, f))
		}
		r.Check(t, got)
	}
	if len(rows) != len(functions) {
		t.Errorf("%d functions are measured, %d are in the table", len(functions), len(rows))
	}
}

// Benchmark measures the functions of a package.
func Benchmark(b *testing.B, functions map[string]func()) {
	for name, f := range functions {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
