package rpc

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"vigil/internal/kv"
)

// nobodyKnown is a member with auth enabled that knows no user. It refuses all that reaches it.
type nobodyKnown struct{ Auth }

func (nobodyKnown) AuthEnabled() bool                              { return true }
func (nobodyKnown) AuthChanged() <-chan struct{}                   { return nil }
func (nobodyKnown) User(context.Context) string                    { return "" }
func (nobodyKnown) RequireUser(context.Context) error              { return kv.ErrUserEmpty }
func (nobodyKnown) RequireAdmin(context.Context) error             { return kv.ErrUserEmpty }
func (nobodyKnown) MayWatch(context.Context, []byte, []byte) error { return kv.ErrUserEmpty }

// Whatever the server serves has a rule, by the descriptors of the services; and there is no rule for what is
// not served.
func TestEveryMethodHasARule(t *testing.T) {
	f := start(t, func(c *Config) { c.Auth, c.Leases = nobodyKnown{}, &fakeLeases{} })
	served := map[string]bool{}
	for service, info := range f.Server.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			full := "/" + service + "/" + m.Name
			served[full] = true
			if r, ok := rules[full]; !ok || r.need == 0 && r.of == nil {
				t.Errorf("%s is served and has no rule", full)
			}
			if f.Server.methods[full] == nil {
				t.Errorf("%s is served and not known", full)
			}
		}
	}
	for full := range rules {
		if !served[full] {
			t.Errorf("%s has a rule and is not served", full)
		}
	}
	if len(served) < 50 {
		t.Errorf("only %d methods are served", len(served))
	}
}

// A method without a rule lets nobody in, whether auth is enabled or not; so does a rule that asks for nothing.
func TestNoRuleNoCall(t *testing.T) {
	for _, s := range []*service{{}, {cfg: Config{Auth: nobodyKnown{}}}} {
		wantStatus(t, s.authorize(t.Context(), &access{}, nil), rpctypes.ErrGRPCPermissionDenied)
	}
	s := &service{cfg: Config{Auth: nobodyKnown{}}}
	wantStatus(t, s.authorize(t.Context(), &access{of: func(any) need { return 0 }}, nil), rpctypes.ErrGRPCPermissionDenied)
	wantStatus(t, s.authorize(t.Context(), &access{need: anyUser}, nil), rpctypes.ErrGRPCUserEmpty)
	wantStatus(t, s.authorize(t.Context(), &access{need: rootOnly}, nil), rpctypes.ErrGRPCUserEmpty)
	for _, n := range []need{open, decided} {
		if err := s.authorize(t.Context(), &access{need: n}, nil); err != nil {
			t.Error(err)
		}
	}
}
