// Package abuse attacks a server with cheap means: connections without requests, long names,
// expensive transactions, answers that no client reads. Each test bounds the cost of an attack for
// the server (memory, log lines, file descriptors) and the duration of another client's calls
// during the attack. It holds only tests.
//
// With VIGIL_ABUSE=compare each attack is also made on a stock etcd, and its figures are logged for
// comparison.
package abuse
