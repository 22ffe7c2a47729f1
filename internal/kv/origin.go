package kv

import "context"

// Origin says where a call comes from, so that clients can share what they compete for. The zero
// value means unknown.
type Origin struct {
	// Host identifies the machine of the client, Connection its connection. Both are comparable.
	Host, Connection any
}

type originKey struct{}

// WithOrigin returns a context for a call from an origin.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf returns the origin of a call.
func OriginOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}
