//go:build wasip1

// Tiny is a program for the test of images: it prints what it knows since its initialization, and
// what is new.
package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"vigil/sim/guest/sys"
)

var (
	initialized = func() map[string]int { return map[string]int{"since": 1} }()
	began       = time.Now()
	large       = strings.Repeat("x", 3<<20) // the memory grows during the initialization
)

func main() {}

//go:wasmexport run
func run() {
	initialized["runs"]++
	time.Sleep(time.Second)
	fmt.Printf("%d %d %d %q %t\n", initialized["since"], initialized["runs"], len(large),
		os.Args[1:], time.Since(began) >= time.Second)
	sys.Reseed()
	fmt.Println("random", rand.Uint64())
	os.Exit(0)
}
