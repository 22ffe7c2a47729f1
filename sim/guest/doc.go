// Guest is the program of the simulated processes, for GOOS=wasip1 and GOARCH=wasm: members and
// clients of the real code. The simulation says which, and gives it a configuration as JSON.
package main
