// Package abuse attacks a server with little: connections without requests, long names, expensive transactions,
// answers that no client reads. Each test bounds what an attack costs the server in memory, lines of log and file
// descriptors, and how long another client's calls take meanwhile. It holds only tests.
//
// With VIGIL_ABUSE=compare each attack is also made on a stock etcd, and its figures are logged next to ours;
// nothing is expected of them.
package abuse
