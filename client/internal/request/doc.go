// Package request encodes the requests of the hot calls: those of the KV and Watch services, and
// keep-alives.
//
// An encoding, decoded with the generated code, equals the request (model_test.go). Numbers of enums
// are those of the API. Requests may be encoded several times, by one goroutine at a time.
package request
