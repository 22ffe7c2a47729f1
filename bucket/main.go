// Command vigil-bucket gives vigil and vigilctl access to the object storage of a cloud: S3 and what speaks it, Google Cloud Storage,
// Azure Blob. They start it and end it; it is of no use alone.
//
// The URL of the bucket is the first line of its input. Credentials are found as the libraries of the clouds do: in the environment,
// in their files, or from the metadata of the machine.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"vigil/bucket/cloud"
	"vigil/internal/bucket/serve"
	"vigil/internal/release"
)

func main() {
	socket := flag.String("socket", "", "the Unix socket to listen on")
	version := flag.Bool("version", false, "print the version")
	flag.Parse()
	if *version {
		fmt.Println("vigil-bucket", release.Version)
		return
	}
	if *socket == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "vigil-bucket is started by vigil and vigilctl for an archive in object storage: see docs/operations/archive.md")
		os.Exit(2)
	}
	// The process that has started this one decides when it ends, also after Ctrl-C in a terminal.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	if serve.Main(context.Background(), *socket, os.Stdin, os.Stdout, cloud.Open) != nil {
		os.Exit(1)
	}
}
