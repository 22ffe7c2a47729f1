package kv

import (
	"context"
	"sync/atomic"
)

// Credentials is what a client shows to say who it is. Nobody has looked at it yet. It must not be copied.
type Credentials struct {
	// Token is the token that came with the call, if HasToken is set.
	Token    string
	HasToken bool
	// CommonName is that of the client's certificate, if HasCertificate is set: it was verified.
	CommonName     string
	HasCertificate bool
	// Member is set on what a member asks itself. It may read everything.
	Member bool

	// Seen is who the client was found to be by its token, nil before that. A call may take longer than a
	// token is valid; it goes on as long as its user stays the same.
	Seen atomic.Pointer[Seen]
}

// Seen is a user as it was when it showed a token. Once its password is another one, it was deleted, or
// auth was disabled, it is not that user any more.
type Seen struct {
	User string
	// Since is the auth revision at which the user got its password, Disabled that at which auth was
	// disabled last.
	Since, Disabled uint64
}

type credentialsKey struct{}

// WithCredentials returns a context for a call with these credentials.
func WithCredentials(ctx context.Context, c *Credentials) context.Context {
	return context.WithValue(ctx, credentialsKey{}, c)
}

// CredentialsOf returns the credentials of a call, nil if there are none.
func CredentialsOf(ctx context.Context) *Credentials {
	c, _ := ctx.Value(credentialsKey{}).(*Credentials)
	return c
}
