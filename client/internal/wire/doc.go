// Package wire encodes the requests of the KV and Watch services and keep-alives by hand, and reads the fields of their
// answers. The generated code of these messages costs several times the allocations.
//
// An encoding, decoded by the generated code, equals the request (model_test.go). Numbers of enums are those of the
// API. Requests may be encoded several times, by one goroutine at a time.
package wire
