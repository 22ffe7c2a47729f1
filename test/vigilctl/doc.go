// Package vigilctl runs scripts with vigilctl, against Vigil and against a stock etcd, and with the stock etcdctl against a
// stock etcd: all must do as the script says. Scripts below testdata/own are about what etcdctl does not do, or does
// otherwise.
//
// Scripts are those of testscript. ctl is the program; ETCDCTL_ENDPOINTS names a server of the script's own. One more
// command: "until REGEXP PROGRAM ARGUMENTS..." runs a program until its output matches. The conditions [vigil] and [etcd] say which server
// it is.
package vigilctl
