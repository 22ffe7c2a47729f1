package grpcconn

import (
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
)

// The codes of gRPC that this package itself gives.
const (
	OK          = 0
	Canceled    = 1
	Unknown     = 2
	Exhausted   = 8
	Internal    = 13
	Unavailable = 14
)

// Status is the outcome of a call.
type Status struct {
	Code    uint32
	Message string
}

// Err is nil for OK.
func (s Status) Err() error {
	if s.Code == OK {
		return nil
	}
	return s
}

// Error makes a status that is not OK an error.
func (s Status) Error() string { return fmt.Sprintf("grpc code %d: %s", s.Code, s.Message) }

func parseCode(v string) uint32 {
	if v == "0" {
		return OK
	}
	n, err := strconv.ParseUint(v, 10, 32)
	if err != nil {
		return Unknown
	}
	return uint32(n)
}

// decodeMessage undoes the percent encoding of grpc-message.
func decodeMessage(v string) string {
	if !strings.Contains(v, "%") {
		return v
	}
	var b strings.Builder
	for i := 0; i < len(v); i++ {
		if v[i] == '%' && i+2 < len(v) {
			if n, err := strconv.ParseUint(v[i+1:i+3], 16, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(v[i])
	}
	return b.String()
}

// codeOf is how gRPC maps a stream's reset.
func codeOf(c http2.ErrCode) uint32 {
	switch c {
	case http2.ErrCodeRefusedStream:
		return Unavailable
	case http2.ErrCodeCancel:
		return Canceled
	case http2.ErrCodeEnhanceYourCalm:
		return Exhausted
	default:
		return Internal
	}
}
