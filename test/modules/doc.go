// Package modules tests how the repository's Go modules are used and renamed: the client from a
// module outside of the repository, as docs/client/module.md describes it, and
// scripts/set-module-path.
package modules
