// Command release builds what users install from one commit: Debian and RPM packages, archives, a
// container image, a list of the parts (SBOM), the licences of others, and checksums. `make release
// VERSION=1.2.3` runs it, and `make release PLATFORM=linux/amd64` for one platform.
//
// The command owns the output directory dist/VERSION and writes nothing else. Invariants:
//
//  1. The same commit, version, platforms and Go toolchain give the same bytes, at every path and
//     on every machine. So every time in the output is that of the commit, every list is sorted,
//     modes and owners are given here and never read from the disk, and `go build` gets none of the
//     variables that change its output.
//  2. What is built is what the commit has: files that differ from it are refused.
//  3. Manuals and completions are generated from the help of the programs that are packed.
//  4. The output directory appears complete or not at all.
//
// Exit codes: 0, 1 if a step failed, 2 for a mistake: a bad version, changed files, a missing tool.
package main
