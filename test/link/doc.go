// Package link is the network between the members of a cluster under test, whose behaviour is set
// for each pair of nodes and each direction. There are two of them.
//
// Network consists of TCP proxies on loopback, one in front of each node:
//
//  1. A connection belongs to the node whose process dialed it and the node it was dialed to. The
//     process is found by the socket, so it works for every protocol without help of the nodes.
//  2. Bytes from a to b obey the rule from a to b, on connections dialed by either. They are
//     delayed, never lost or reordered within a connection: TCP handles lost packets like that. A
//     connection that is reset loses the bytes in transit.
//  3. A rule applies as soon as it is set, also to queued bytes.
//
// Switch gives each node a network namespace of its own, which needs root, and carries packets
// between them:
//
//  1. A packet obeys the rule from the node that sent it to the node of its address. It may be
//     lost, duplicated and reordered; the kernels at both ends repeat it, give up or return errors.
//  2. A rule applies to the packets that are sent after it was set. Nothing is queued while a way
//     is cut.
//  3. The network of the host is not touched. A namespace has no name: it exists as long as a
//     descriptor or a process in it, so the kernel removes it when the test process ends, however
//     that ends.
package link
