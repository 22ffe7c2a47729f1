// Package rpc is the member's gRPC API: the services of etcdserverpb, locks and elections, health and
// reflection.
//
// A service decodes a request, admits it (leader required, learner, client version), validates it like etcd and with etcd's
// errors, calls the member through the interfaces of this package, and encodes the answer. It does not depend on raft, logs
// or stores. KV and Watch use the messages of package wire; the others use the generated ones.
//
//  1. Every error that a client sees comes from the table in errors.go or from validation, with the
//     exact code and text of etcd's rpctypes: clients compare texts.
//  2. Validation is complete before the member is called: requests to KV have non-empty keys, valid sort options, no empty
//     operation in a transaction, no key put twice or put and deleted in one transaction, and not too many operations on
//     any level.
//  3. The member owns a request: its bytes are never reused. This package owns a result from the return on.
//  4. A watch stream has two goroutines, one that receives and one that sends; a client that does not read blocks its own
//     stream only.
//  5. A panic in a handler fails that request or stream with code Internal and is logged with its stack. It does not end
//     the process.
//  6. A method without a rule in authorize.go is rejected. While auth is enabled, the rule is checked first; a decision
//     that it leaves to the member uses the credentials of the call, which are in its context. A watcher is created only
//     if the user may read its range, which is checked again whenever users or roles change.
//  7. After Stop has returned no handler runs.
//
// Services use the status codes and the metadata of grpc-go only. The server is in package transport.
package rpc
