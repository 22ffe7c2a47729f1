package gate

import (
	"context"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// Need is what a method requires while authentication is enabled. The zero value rejects every
// call, with or without authentication: a method without a rule is not served.
type Need uint8

const (
	_ Need = iota
	// Open: every client may call it, with any token or none.
	Open
	// Decided: the member decides about each part of the request: about a proposal when it is
	// applied, about a read by the rights at the position of the read.
	Decided
	// AnyUser: every identified user may call it. RootOnly: users with the role root may call it.
	// The member confirms first that it knows the rights that any member knows.
	AnyUser
	RootOnly
	// UserHere: every identified user may call it, as far as this member knows. The answer
	// describes this member, and is as old as the rights; a member that hangs must answer it.
	UserHere
)

// Rule is the rule of one method.
type Rule struct {
	Need Need
	// Of, if set, returns the requirement of a request instead.
	Of func(request any) Need
	// Valid, if set, is checked first.
	Valid func(request any) error
}

// Users returns a function that returns the user who makes a call, "" if unknown.
func Users(r Rights) func(context.Context) string {
	return func(ctx context.Context) string {
		if r == nil || !r.AuthEnabled() {
			return ""
		}
		return r.User(ctx)
	}
}

// authEnabled reports whether calls need credentials, as far as this member knows.
func (g *Gate) authEnabled() bool { return g.o.Rights != nil && g.o.Rights.AuthEnabled() }

// authorize checks the rule of a method. request is nil for a stream, which has not received one
// yet. ctx has the credentials of the call.
func (g *Gate) authorize(ctx context.Context, rule *Rule, request any) error {
	if rule.Need == 0 && rule.Of == nil {
		return rpctypes.ErrGRPCPermissionDenied
	}
	rights := g.o.Rights
	if rights == nil {
		return nil
	}
	if rule.Valid != nil && rights.AuthEnabled() {
		if err := rule.Valid(request); err != nil {
			return err
		}
	}
	n := rule.Need
	if rule.Of != nil {
		n = rule.Of(request)
	}
	switch n {
	case Open, Decided:
		return nil
	case UserHere:
		return apierror.Status(rights.CheckUser(ctx))
	case AnyUser:
		return apierror.Status(rights.RequireUser(ctx))
	case RootOnly:
		return apierror.Status(rights.RequireAdmin(ctx))
	}
	return rpctypes.ErrGRPCPermissionDenied
}

// gatewayKey is in the metadata of calls of the JSON gateway.
const gatewayKey = "grpcgateway-accept"

// withCredentials returns a context with the credentials of a call: its token, or else the
// certificate of its connection if certificates name users. The gateway's connection is not the
// client's. A call without credentials needs no new context, because a client may have very many
// streams, but it never gets the credentials of the context that it was made with. Authentication
// may be enabled before the call ends, or may be enabled without this member knowing it yet, so a
// call has credentials whether it is enabled or not.
func (g *Gate) withCredentials(ctx context.Context) context.Context {
	if g.o.Rights == nil {
		return ctx
	}
	v := metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameGRPC)
	if len(v) == 0 {
		v = metadata.ValueFromIncomingContext(ctx, rpctypes.TokenFieldNameSwagger)
	}
	name, certified := g.commonName(ctx)
	if len(v) == 0 && !certified && kv.CredentialsOf(ctx) == nil {
		return ctx
	}
	ctx, c := kv.WithNewCredentials(ctx)
	if len(v) > 0 {
		c.Token, c.HasToken = strings.TrimPrefix(v[0], "Bearer "), true
	} else {
		c.CommonName, c.HasCertificate = name, certified
	}
	return ctx
}

// commonName returns the common name of the certificate with which a client opened its connection,
// if certificates name users and this one was verified.
func (g *Gate) commonName(ctx context.Context) (name string, ok bool) {
	st := transport.TLS(ctx)
	if !g.o.CertificateUsers || len(metadata.ValueFromIncomingContext(ctx, gatewayKey)) > 0 ||
		st == nil || len(st.VerifiedChains) == 0 || len(st.VerifiedChains[0]) == 0 {
		return "", false
	}
	return st.VerifiedChains[0][0].Subject.CommonName, true
}
