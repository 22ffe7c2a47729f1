package server

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"vigil/internal/state/auth/password"
	"vigil/internal/state/auth/token"
	"vigil/internal/tracing"
)

// Auth is the authentication of users, once it is enabled.
type Auth struct {
	// Token is the kind of user tokens: "simple", or "jwt" followed by its options as
	// ",NAME=VALUE". TokenTTL is how long an unused simple token is valid.
	Token    string
	TokenTTL time.Duration
	// BcryptCost is the cost of hashing a password, 4 to 31; outside of these the default. Each
	// step doubles the time.
	BcryptCost int
}

// bcryptCost returns the cost in effect. As in etcd, a member with an invalid cost starts and uses
// the default.
func (a Auth) bcryptCost(log *slog.Logger) int {
	if a.BcryptCost >= password.MinCost && a.BcryptCost <= password.MaxCost {
		return a.BcryptCost
	}
	log.Warn("use default bcrypt cost instead of the invalid given cost", "min-cost",
		password.MinCost, "max-cost", password.MaxCost,
		"default-cost", password.DefaultCost, "given-cost", a.BcryptCost)
	return password.DefaultCost
}

func (a Auth) validate() error {
	var errs []error
	if kind, _, _ := strings.Cut(a.Token, ","); kind != token.KindSimple && kind != token.KindJWT {
		errs = append(errs, fmt.Errorf(`--auth-token: %q is neither "simple" nor "jwt,NAME=VALUE,..."`, a.Token))
	}
	return errors.Join(errs...)
}

// Tracing exports spans by OpenTelemetry's protocol.
type Tracing struct {
	Enabled bool
	tracing.Config
}

func (t *Tracing) validate() error {
	if t.Enabled && (t.SamplingRate < 0 || t.SamplingRate > 1_000_000) {
		return fmt.Errorf("--distributed-tracing-sampling-rate: %d is outside 0 to 1000000",
			t.SamplingRate)
	}
	return nil
}
