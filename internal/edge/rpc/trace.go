package rpc

import (
	"context"
	"path"
	"strings"

	"golang.org/x/net/trace"

	"vigil/internal/edge/rpc/transport"
)

// traced begins the record of a call for /debug/requests and returns the function that ends it. It is used only with a
// verbose log: a record costs more than most calls.
func traced(ctx context.Context, method string) (end func(error)) {
	service := strings.TrimPrefix(path.Dir(method), "/")
	tr := trace.New("grpc.Recv."+service[strings.LastIndexByte(service, '.')+1:], method)
	tr.LazyPrintf("from %s", transport.Remote(ctx))
	return func(err error) {
		if err != nil {
			tr.LazyPrintf("%v", err)
			tr.SetError()
		}
		tr.Finish()
	}
}
