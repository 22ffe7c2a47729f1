// Command programs builds the programs that the tests run, into test/bin. With VIGIL_BUILT=1 the
// tests use them as they are: a build that changes nothing takes a second of a processor for each
// program of each package of tests.
package main

import (
	"fmt"
	"os"

	"vigil/test/proc"
)

func main() {
	for _, p := range []proc.Program{proc.Vigil, proc.Vigilctl, proc.Etcd, proc.Etcdctl,
		proc.Etcdutl, proc.Previous, proc.Next, proc.Follow} {
		if _, err := proc.Build(p); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
