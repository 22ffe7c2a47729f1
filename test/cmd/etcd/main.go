// Command etcd is the stock etcd server, built from its own module so that the tests can put it
// next to Vigil.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
