// Package pool keeps the connections to the members of a cluster and chooses the member to use.
//
// Each member has its own grpc.ClientConn. One member is used for everything until it turns sick or
// is lost, or until the preferred one is back. So a client has one connection, and its reads do not
// go back and forth in time between members. Only the member in use and members with a Find stay
// connected: idle connections are closed after 30 s.
//
// The preferred member is the first one that was used. Members added later take its place with
// equal probability, so that clients spread over a cluster.
//
// Pool.mu is taken before Member.mu. No call of gRPC is made with a lock held, except to open a
// connection.
package pool
