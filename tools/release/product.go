package main

import (
	"path/filepath"
	"slices"
)

// summary is the first line of the descriptions of what has the server.
const summary = "durable, watchable key-value store that speaks the etcd v3 API"

const description = ` Vigil keeps the state of control planes, configuration, locks and leader
 election: small data that must not be lost, and of which many clients see
 every change in order. The clients of etcd, etcdctl and the API server of
 Kubernetes work with it unchanged.
 .
 This package has the server, vigil, and the command line, vigilctl.`

const bucketDescription = ` Vigil archives every change of a cluster into a directory or a bucket. This
 package has the program vigil-bucket, which vigil and vigilctl start for a
 bucket: in S3 and what speaks it, Google Cloud Storage, or Azure Blob.`

// product is what is installed for itself: programs, the list of their parts, and their licences.
type product struct {
	// name is that of its packages, archives and directories; summary and description describe
	// them, as Debian wants it.
	name, summary, description string
	// module is the directory of the Go module of the programs.
	module   string
	programs []program

	licences *licences
	sbom     []byte
}

// program is a program of a product: its name, and the package of the module that it is built of.
type program struct {
	name, source string
	// server is set for a program that runs on Linux only.
	server bool
}

// servers is the product of the server and the command line.
func servers() *product {
	return &product{name: "vigil", summary: summary, description: description, module: ".",
		programs: []program{{"vigil", "./cmd/vigil", true}, {"vigilctl", "./cmd/vigilctl", false}}}
}

// buckets is the product of the program for the object storage of clouds. It is for itself because
// it is larger than the others together, and few need it.
func buckets() *product {
	return &product{name: "vigil-bucket",
		summary:     "access of Vigil's archives to the object storage of clouds",
		description: bucketDescription, module: "bucket",
		programs: []program{{"vigil-bucket", ".", false}}}
}

// on returns the names of the programs for a platform.
func (d *product) on(p platform) (out []string) {
	for _, x := range d.programs {
		if p.os == "linux" || !x.server {
			out = append(out, x.name)
		}
	}
	return out
}

// folder is the name of the archive of a platform without its ending: that of the product, or of
// its only program there.
func (r *release) folder(d *product, p platform) string {
	name := d.name
	if on := d.on(p); !slices.Contains(on, name) {
		name = on[0]
	}
	return name + "-" + r.version + "-" + p.String()
}

// directory is where the module of a product is.
func (r *release) directory(d *product) string { return filepath.Join(r.source.root, d.module) }
