// Command etcdpeer is a stock etcd server, built from its published module at the version that
// go.mod of this module pins, so that both sides of a comparison come from one toolchain on one
// machine.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
