package server

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Auth says how users show who they are, once authentication is enabled.
type Auth struct {
	// Token is the kind of the tokens that users get for a password: "simple" (the default), or "jwt"
	// followed by its options as ",NAME=VALUE". TokenTTL is how long an unused simple token is valid,
	// default 300 s.
	Token    string
	TokenTTL time.Duration
	// BcryptCost is the cost of hashing a password, 4 to 31, default 10. Each step doubles the time.
	BcryptCost int
}

func (a Auth) withDefaults() Auth {
	def(&a.Token, "simple")
	def(&a.TokenTTL, 300*time.Second)
	def(&a.BcryptCost, 10)
	return a
}

func (a Auth) validate() error {
	var errs []error
	if kind, _, _ := strings.Cut(a.Token, ","); kind != "simple" && kind != "jwt" {
		errs = append(errs, fmt.Errorf(`--auth-token: %q is neither "simple" nor "jwt,NAME=VALUE,..."`, a.Token))
	}
	if a.BcryptCost < 4 || a.BcryptCost > 31 {
		errs = append(errs, fmt.Errorf("--bcrypt-cost: %d is outside 4 to 31", a.BcryptCost))
	}
	return errors.Join(errs...)
}

// Tracing exports spans by OpenTelemetry's protocol.
type Tracing struct {
	Enabled bool
	// Address is that of the collector, default localhost:4317.
	Address string
	// ServiceName is the same at all members, default "etcd", InstanceID another at each.
	ServiceName, InstanceID string
	// SamplingRate is how many of a million traces that begin here are exported, default 0. Those that
	// a client began are as the client has it.
	SamplingRate int
}

func (t Tracing) withDefaults() Tracing {
	def(&t.Address, "localhost:4317")
	def(&t.ServiceName, "etcd")
	return t
}

func (t *Tracing) validate() error {
	if t.SamplingRate < 0 || t.SamplingRate > 1_000_000 {
		return fmt.Errorf("--distributed-tracing-sampling-rate: %d is outside 0 to 1000000", t.SamplingRate)
	}
	return nil
}
