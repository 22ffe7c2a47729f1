package token

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"vigil/internal/state/auth"
)

// ErrVerifyOnly is the error of Sign on a member that has only a public key.
var ErrVerifyOnly = errors.New("auth: token signing attempted with verify-only key")

// The claims of a token besides its expiry. The names are etcd's.
const (
	claimUser     = "username"
	claimRevision = "revision"
)

// JWT signs and verifies tokens. It is immutable.
type JWT struct {
	method jwt.SigningMethod
	// sign is nil if this member can only verify.
	sign, verify any
	ttl          time.Duration
	parser       *jwt.Parser
}

// ParseJWT reads the options of JWTs, NAME=VALUE,...: sign-method (required), pub-key and priv-key
// (files in PEM form, or for HMAC any bytes as priv-key), ttl (a duration, default 5 minutes).
// unknown are the names of unknown options.
func ParseJWT(options string) (j *JWT, unknown []string, err error) {
	given := map[string]string{}
	if options != "" {
		for _, o := range strings.Split(options, ",") {
			name, value, ok := strings.Cut(o, "=")
			if _, twice := given[name]; !ok || twice || strings.Contains(value, "=") {
				return nil, nil, fmt.Errorf("jwt option %q is not NAME=VALUE, or is given twice", o)
			}
			given[name] = value
		}
	}
	for name := range given {
		if !slices.Contains([]string{"sign-method", "pub-key", "priv-key", "ttl"}, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	j = &JWT{ttl: DefaultTTL}
	if s := given["ttl"]; s != "" {
		if j.ttl, err = time.ParseDuration(s); err != nil {
			return nil, unknown, fmt.Errorf("jwt option ttl: %w", err)
		}
	}
	// A method that does not sign is not allowed.
	if j.method = jwt.GetSigningMethod(given["sign-method"]); j.method == nil ||
		j.method == jwt.SigningMethodNone {
		return nil, unknown,
			fmt.Errorf("jwt option sign-method: %q is none of %s", given["sign-method"],
				strings.Join(methods(), ", "))
	}
	var private, public []byte
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{"priv-key", &private}, {"pub-key", &public}} {
		if file := given[f.name]; file != "" {
			if *f.to, err = os.ReadFile(file); err != nil {
				return nil, unknown, fmt.Errorf("jwt option %s: %w", f.name, err)
			}
		}
	}
	if err := j.keys(private, public); err != nil {
		return nil, unknown, fmt.Errorf("jwt with %s: %w", j.method.Alg(), err)
	}
	j.parser = jwt.NewParser(jwt.WithValidMethods([]string{j.method.Alg()}))
	if j.sign != nil {
		// A key that does not fit the method is an error now, and not when a user authenticates.
		if _, err := j.Sign(auth.Identity{}); err != nil {
			return nil, unknown, fmt.Errorf("jwt with %s: priv-key: %w", j.method.Alg(), err)
		}
	}
	return j, unknown, nil
}

// methods lists the signing methods.
func methods() []string {
	out := slices.DeleteFunc(jwt.GetAlgorithms(),
		func(s string) bool { return s == jwt.SigningMethodNone.Alg() })
	slices.Sort(out)
	return out
}

var (
	errNoKey    = errors.New("no key: give priv-key, or pub-key to verify only")
	errMismatch = errors.New("pub-key is not the public key of priv-key")
)

// keys parses the keys of the method: PEM, or for HMAC the bytes themselves.
func (j *JWT) keys(private, public []byte) error {
	switch j.method.(type) {
	case *jwt.SigningMethodHMAC:
		if len(private) == 0 {
			return errors.New("no key: give priv-key")
		}
		j.sign, j.verify = private, private
		return nil
	case *jwt.SigningMethodRSA, *jwt.SigningMethodRSAPSS:
		return pair(j, private, public, jwt.ParseRSAPrivateKeyFromPEM, jwt.ParseRSAPublicKeyFromPEM,
			func(k *rsa.PrivateKey) *rsa.PublicKey { return &k.PublicKey })
	case *jwt.SigningMethodECDSA:
		return pair(j, private, public, jwt.ParseECPrivateKeyFromPEM, jwt.ParseECPublicKeyFromPEM,
			func(k *ecdsa.PrivateKey) *ecdsa.PublicKey { return &k.PublicKey })
	case *jwt.SigningMethodEd25519:
		return pair(j, private, public, jwt.ParseEdPrivateKeyFromPEM, jwt.ParseEdPublicKeyFromPEM,
			func(k crypto.PrivateKey) crypto.PublicKey { return k.(ed25519.PrivateKey).Public() })
	}
	return errors.New("unsupported method")
}

// pair parses a private key, a public key or both, which must then belong together.
func pair[Private, Public any](j *JWT, private, public []byte,
	parsePrivate func([]byte) (Private, error), parsePublic func([]byte) (Public, error),
	half func(Private) Public) error {
	if len(private) == 0 && len(public) == 0 {
		return errNoKey
	}
	if len(public) > 0 {
		k, err := parsePublic(public)
		if err != nil {
			return fmt.Errorf("pub-key: %w", err)
		}
		j.verify = k
	}
	if len(private) > 0 {
		k, err := parsePrivate(private)
		if err != nil {
			return fmt.Errorf("priv-key: %w", err)
		}
		own := any(half(k))
		if j.verify != nil && !own.(interface{ Equal(crypto.PublicKey) bool }).Equal(j.verify) {
			return errMismatch
		}
		j.sign, j.verify = k, own
	}
	return nil
}

// Sign issues a token.
func (j *JWT) Sign(id auth.Identity) (string, error) {
	if j.sign == nil {
		return "", ErrVerifyOnly
	}
	return jwt.NewWithClaims(j.method, jwt.MapClaims{
		claimUser:     id.User,
		claimRevision: id.Revision,
		"exp":         time.Now().Add(j.ttl).Unix(),
	}).SignedString(j.sign)
}

// Verify returns the user of a token, with the auth revision at which it was issued.
func (j *JWT) Verify(token string) (auth.Identity, bool) {
	t, err := j.parser.Parse(token, func(*jwt.Token) (any, error) { return j.verify, nil })
	if err != nil || !t.Valid {
		return auth.Identity{}, false
	}
	claims, _ := t.Claims.(jwt.MapClaims)
	user, ok := claims[claimUser].(string)
	revision, isNumber := claims[claimRevision].(float64)
	// The conversion of a number that is not a revision would be undefined.
	if !ok || !isNumber || !(revision >= 0 && revision < 1<<63) {
		return auth.Identity{}, false
	}
	return auth.Identity{User: user, Revision: uint64(revision)}, true
}
