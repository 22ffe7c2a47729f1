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

// Discovery finds the other members of a new cluster: in a registry, which is another cluster, or in
// DNS. The zero value is none.
type Discovery struct {
	// Token names the new cluster in the registry, and Endpoints are where the registry is.
	Token     string
	Endpoints []string
	// DialTimeout bounds making a connection to it, default 2 s, RequestTimeout a request, default 5 s.
	// KeepAliveTime is how often it is pinged, default 2 s, and KeepAliveTimeout how long the answer may
	// take, default 6 s.
	DialTimeout, RequestTimeout, KeepAliveTime, KeepAliveTimeout time.Duration
	// TLS encrypts these connections; CertFile and KeyFile are shown to the registry, whose certificate
	// must be of an authority in CAFile, by default of one that the system knows, unless
	// InsecureSkipVerify believes every one.
	TLS                       bool
	CertFile, KeyFile, CAFile string
	InsecureSkipVerify        bool
	// User may be NAME:PASSWORD.
	User, Password string

	// SRV is a DNS domain whose SRV records name the members, and SRVName ends the names of the
	// services that are asked for.
	SRV, SRVName string
}

// wanted reports whether the members are to be found.
func (d *Discovery) wanted() bool { return len(d.Endpoints) > 0 || d.SRV != "" }

func (d Discovery) withDefaults() Discovery {
	def(&d.DialTimeout, 2*time.Second)
	def(&d.RequestTimeout, 5*time.Second)
	def(&d.KeepAliveTime, 2*time.Second)
	def(&d.KeepAliveTimeout, 6*time.Second)
	return d
}

func (d *Discovery) validate(initialCluster string) error {
	var errs []error
	bad := func(cond bool, text string) {
		if cond {
			errs = append(errs, errors.New(text))
		}
	}
	ways := 0
	for _, set := range []bool{initialCluster != "", len(d.Endpoints) > 0, d.SRV != ""} {
		if set {
			ways++
		}
	}
	bad(ways > 1, "--initial-cluster, --discovery-endpoints and --discovery-srv exclude each other")
	bad((d.Token != "") != (len(d.Endpoints) > 0), "--discovery-token and --discovery-endpoints go together")
	bad(d.SRVName != "" && d.SRV == "", "--discovery-srv-name needs --discovery-srv")
	bad((d.CertFile == "") != (d.KeyFile == ""), "--discovery-cert and --discovery-key go together")
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
