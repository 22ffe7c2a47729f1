package server

import (
	"fmt"
	"strings"

	"vigil/auth/token"
	"vigil/replica"
)

// openTokens reads the keys by which tokens are signed; nil if they are simple ones.
func (m *Member) openTokens() (replica.JWT, error) {
	kind, options, _ := strings.Cut(m.cfg.Auth.Token, ",")
	if kind != "jwt" {
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
