package server

import (
	"fmt"
	"net/http"
	"strings"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/kv"
	"vigil/internal/member/replica/access"
	"vigil/internal/state/auth/token"
)

// forRoot restricts a page with names of keys and users to the role root while authentication is
// enabled. The token is in the header Authorization, like for the JSON gateway.
func (m *Member) forRoot(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.Header.Get("Authorization")
		ctx := kv.WithCredentials(r.Context(),
			&kv.Credentials{Token: strings.TrimPrefix(given, "Bearer "), HasToken: given != ""})
		if err := m.replica.Access.RequireAdmin(ctx); err != nil {
			http.Error(w, apierror.Text(err), http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// openTokens reads the keys that sign tokens. It returns nil for simple tokens.
func (m *Member) openTokens() (access.JWT, error) {
	kind, options, _ := strings.Cut(m.cfg.Auth.Token, ",")
	if kind != token.KindJWT {
		return nil, nil
	}
	j, unknown, err := token.ParseJWT(options)
	if err != nil {
		return nil, fmt.Errorf("--auth-token: %w", err)
	}
	if len(unknown) > 0 {
		m.log.Warn("unknown JWT options", "options", strings.Join(unknown, " "))
	}
	return j, nil
}
