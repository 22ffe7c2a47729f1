package kv

import (
	"context"
	"sync/atomic"
)

// Credentials holds the data that a client sends to authenticate; nobody has verified it yet. It
// must not be copied.
type Credentials struct {
	// Token is the token of the call, if HasToken is set. CommonName is the name in the client's
	// verified certificate, if HasCertificate is set.
	Token, CommonName        string
	HasToken, HasCertificate bool
	// Member is set for requests that the member itself makes. They may read everything and propose
	// what root may propose, except changes of keys.
	Member bool

	// Seen is the user that the token identified, nil before that. A call may take longer than its
	// token is valid; it continues while its user stays the same.
	Seen atomic.Pointer[Seen]
	// Rejected is set when the member has logged that the token is invalid.
	Rejected atomic.Bool
}

// Seen is a user at the time when it sent a token. It stops being the same user when its password
// is changed, when it is deleted, or when auth is disabled.
type Seen struct {
	User string
	// Since is the auth revision at which the password was set, Disabled the auth revision at which
	// auth was last disabled.
	Since, Disabled uint64
}

type credentialsKey struct{}

// WithCredentials returns a context for a call with these credentials.
func WithCredentials(ctx context.Context, c *Credentials) context.Context {
	return context.WithValue(ctx, credentialsKey{}, c)
}

// AsMember returns a context for requests that the member itself makes.
func AsMember(ctx context.Context) context.Context {
	return WithCredentials(ctx, &Credentials{Member: true})
}

// WithNewCredentials returns a context with new credentials, and these credentials: both are one
// object.
func WithNewCredentials(ctx context.Context) (context.Context, *Credentials) {
	c := &credentialsContext{Context: ctx}
	return c, &c.credentials
}

type credentialsContext struct {
	context.Context
	credentials Credentials
}

// Value implements context.Context.
func (c *credentialsContext) Value(key any) any {
	if key == any(credentialsKey{}) {
		return &c.credentials
	}
	return c.Context.Value(key)
}

// CredentialsOf returns the credentials of a call, nil if there are none.
func CredentialsOf(ctx context.Context) *Credentials {
	c, _ := ctx.Value(credentialsKey{}).(*Credentials)
	return c
}
