// Package request encodes the requests of the hot calls: the KV and Watch services, and
// keep-alives.
//
// An encoding, decoded with the generated code, equals the request (model_test.go). Enums have the
// numbers of the API. Requests may be encoded several times, by one goroutine at a time.
package request
