// Package rpc is the member's gRPC API: the table of its methods with their rules, and the server
// that is assembled from the services.
//
// Each service is a package (kvapi, watchapi, leaseapi, authapi, clusterapi, maintenanceapi,
// lockapi, timesapi, healthapi). It validates requests like etcd and with etcd's errors, calls the
// member through small interfaces that it declares, and makes the answers. It does not depend on
// raft, logs or stores. Package gate has what is common to all calls: admission, rights, metrics
// and the log. Package delivery counts large answers, and inprocess calls the services in this
// process. KV, Watch and parts of Lease use the messages of package wire; the other services use
// generated ones.
//
//  1. Every error that a client sees comes from the table in package apierror or from validation,
//     with the exact code and text of etcd's rpctypes: clients compare texts.
//  2. Validation is complete before the member is called.
//  3. The member owns a request: its bytes are never reused. The service owns a result from the
//     return on.
//  4. Every method has a rule in methods.go.
//  5. After Stop has returned no handler runs.
//
// Services use only the status codes and the metadata of grpc-go. The server is in package
// transport.
package rpc
