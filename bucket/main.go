// Command vigil-bucket gives vigil and vigilctl access to the object storage of a cloud: S3 and
// what speaks it, Google Cloud Storage, Azure Blob. They start it and end it; it is of no use
// alone.
//
// The URL of the bucket is the first line of its input. Credentials are found as the libraries of
// the clouds do: in the environment, in their files, or from the metadata of the machine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"vigil/bucket/cloud"
	"vigil/internal/bucket/serve"
	"vigil/internal/release"
)

const usage = `Access of Vigil's archives to the object storage of clouds.

Usage:
  vigil-bucket [--version]

vigil and vigilctl start vigil-bucket for an archive in a bucket, s3://,
gs:// or azblob://, and end it; it is of no use alone. They look for it next
to their own file and in PATH; vigilctl archive has --bucket-program.

Credentials are found as the clouds' own programs do: in the environment, in
their files, or from the machine's identity.

Flags:
  --socket PATH
        the Unix socket to listen on: vigil and vigilctl give it
  --version
        print the version
`

func main() {
	flags := flag.NewFlagSet("vigil-bucket", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	socket := flags.String("socket", "", "")
	version := flags.Bool("version", false, "")
	err := flags.Parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(usage)
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "vigil-bucket:", err)
		os.Exit(2)
	case *version:
		fmt.Println("vigil-bucket", release.Version)
		return
	case *socket == "" || flags.NArg() > 0:
		fmt.Fprintln(os.Stderr,
			"vigil-bucket is started by vigil and vigilctl for an archive in object storage: see "+
				"docs/operations/archive.md")
		os.Exit(2)
	}
	// The output is for the process that has started this one. Libraries print warnings there.
	out := os.Stdout
	os.Stdout = os.Stderr
	// The process that has started this one decides when it ends, also after Ctrl-C in a terminal.
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	if serve.Main(context.Background(), *socket, os.Stdin, out, cloud.Open) != nil {
		os.Exit(1)
	}
}
