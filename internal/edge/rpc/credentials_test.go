package rpc

import (
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/metadata"

	"vigil/internal/kv"
)

// TestWithCredentials: a call has its own credentials, and never those of the context that it was made with. One without credentials gets
// no new context.
func TestWithCredentials(t *testing.T) {
	s := &service{cfg: Config{CertificateUsers: true}}
	plain := t.Context()
	if ctx := s.withCredentials(plain); ctx != plain {
		t.Error("a call without credentials has another context")
	}
	outer := kv.WithCredentials(plain, &kv.Credentials{Token: "outer", HasToken: true, Member: true})
	if c := kv.CredentialsOf(s.withCredentials(outer)); c.HasToken || c.HasCertificate || c.Member {
		t.Errorf("a call without credentials has those of its context: token %q", c.Token)
	}
	sent := metadata.NewIncomingContext(outer, metadata.Pairs(rpctypes.TokenFieldNameGRPC, "Bearer own"))
	if c := kv.CredentialsOf(s.withCredentials(sent)); c.Token != "own" || !c.HasToken || c.Member {
		t.Errorf("a call with a token has %q", c.Token)
	}
}
