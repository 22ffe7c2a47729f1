// Guest is the program of the simulated processes, for GOOS=wasip1 and GOARCH=wasm: members and clients of the real
// code. Its first argument says which, the second one is the configuration as JSON.
package main
