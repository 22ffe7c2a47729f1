// Package vigilctl runs scripts with vigilctl, against Vigil and against a stock etcd, and with the
// stock etcdctl against a stock etcd: all must produce the output in the script. Scripts in
// testdata/own test behavior that differs from etcdctl's or that etcdctl does not have.
//
// The scripts are testscript's. ctl is the program; ETCDCTL_ENDPOINTS is a server for this script
// only. An additional command, "until REGEXP PROGRAM ARGUMENTS...", runs a program until its output
// matches. The conditions [vigil] and [etcd] select the server.
package vigilctl
