package gate

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"vigil/internal/kv"
)

// nobodyKnown is a member with auth enabled that knows no user.
type nobodyKnown struct{}

func (nobodyKnown) AuthEnabled() bool                  { return true }
func (nobodyKnown) User(context.Context) string        { return "" }
func (nobodyKnown) CheckUser(context.Context) error    { return kv.ErrUserEmpty }
func (nobodyKnown) RequireUser(context.Context) error  { return kv.ErrUserEmpty }
func (nobodyKnown) RequireAdmin(context.Context) error { return kv.ErrUserEmpty }

// A method without a rule rejects all calls, whether auth is enabled or not; so does a rule that
// requires nothing.
func TestNoRuleNoCall(t *testing.T) {
	want := func(err, want error) {
		t.Helper()
		if rpctypes.Error(err) != rpctypes.Error(want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for _, g := range []*Gate{{}, {o: Options{Rights: nobodyKnown{}}}} {
		want(g.authorize(t.Context(), &Rule{}, nil), rpctypes.ErrGRPCPermissionDenied)
	}
	g := &Gate{o: Options{Rights: nobodyKnown{}}}
	want(g.authorize(t.Context(), &Rule{Of: func(any) Need { return 0 }}, nil),
		rpctypes.ErrGRPCPermissionDenied)
	want(g.authorize(t.Context(), &Rule{Need: AnyUser}, nil), rpctypes.ErrGRPCUserEmpty)
	want(g.authorize(t.Context(), &Rule{Need: RootOnly}, nil), rpctypes.ErrGRPCUserEmpty)
	for _, n := range []Need{Open, Decided} {
		if err := g.authorize(t.Context(), &Rule{Need: n}, nil); err != nil {
			t.Error(err)
		}
	}
}

// TestWithCredentials: a call has its own credentials, and never those of the context that it was
// made with. A call without credentials gets no new context.
func TestWithCredentials(t *testing.T) {
	g := &Gate{o: Options{Rights: nobodyKnown{}, CertificateUsers: true}}
	plain := t.Context()
	if ctx := g.withCredentials(plain); ctx != plain {
		t.Error("a call without credentials has another context")
	}
	outer := kv.WithCredentials(plain,
		&kv.Credentials{Token: "outer", HasToken: true, Member: true})
	if c := kv.CredentialsOf(g.withCredentials(outer)); c.HasToken || c.HasCertificate || c.Member {
		t.Errorf("a call without credentials has those of its context: token %q", c.Token)
	}
	sent := metadata.NewIncomingContext(outer,
		metadata.Pairs(rpctypes.TokenFieldNameGRPC, "Bearer own"))
	if c := kv.CredentialsOf(g.withCredentials(sent)); c.Token != "own" || !c.HasToken || c.Member {
		t.Errorf("a call with a token has %q", c.Token)
	}
}
