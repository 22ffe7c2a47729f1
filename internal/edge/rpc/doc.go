// Package rpc is the member's gRPC API: the services of etcdserverpb, locks and elections, health and
// reflection.
//
// A service decodes a request, admits it (leader required, learner, client version), validates it
// as etcd does and with etcd's errors, hands it to the member through the interfaces of this
// package, and encodes the answer. It knows nothing of raft, logs or stores. KV and Watch use the
// messages of internal/edge/rpc/wire; the others the generated ones.
//
//  1. Every error that a client sees comes from the table in errors.go or from validation, with the
//     exact code and text of etcd's rpctypes: clients compare texts.
//  2. Validation is complete before the member is asked: what reaches KV has non-empty keys, legal
//     sort options, no operation of a transaction empty, no key put twice or put and deleted in one
//     transaction, and not too many operations on any level.
//  3. A request belongs to whoever gets it: its bytes are never reused, so the member may keep them
//     as long as it likes. A result belongs to this package from the return on.
//  4. A watch stream has two goroutines, one that receives and one that sends; a client that does
//     not read holds up its own stream only.
//  5. A panic in a handler fails that request or stream with code Internal, is logged with its
//     stack, and stops there.
//  6. A method that has no rule in authorize.go is not served. While auth is enabled nobody gets further than
//     the rule allows; what it leaves to the member reaches it with the credentials of the call in its context.
//     A watcher is made only for who may read its range, and is looked at again whenever users or roles change.
//  7. After Stop has returned no handler runs.
//
// Services use the status codes and the metadata of grpc-go only. Its server is in package transport, so that another
// implementation of HTTP/2 can take its place.
package rpc
