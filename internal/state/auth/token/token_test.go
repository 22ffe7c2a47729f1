package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
)

func TestSimple(t *testing.T) {
	s := NewSimple(time.Minute)
	now := time.Unix(1000, 0)
	s.now = func() time.Time { return now }
	alice := kv.Seen{User: "alice", Since: 3}
	s.Add("a.1", alice)
	now = now.Add(50 * time.Second)
	if seen, ok := s.Use("a.1"); !ok || seen != alice {
		t.Fatalf("%+v, %v", seen, ok)
	}
	now = now.Add(time.Minute) // since it was used
	if _, ok := s.Use("a.1"); !ok {
		t.Fatal("a token that is used ends")
	}
	now = now.Add(time.Minute + 1)
	if _, ok := s.Use("a.1"); ok {
		t.Fatal("a token that was not used for its time is valid")
	}
	if _, ok := s.Use("b.1"); ok {
		t.Fatal("an unknown token is valid")
	}
	// Those that have expired do not fill the memory.
	for range 10 * minSweep {
		s.Add(NewPrefix()+".1", alice)
		now = now.Add(time.Second)
	}
	if n := len(s.mu.tokens); n > 2*minSweep {
		t.Errorf("%d tokens are kept, of which 60 are valid", n)
	}
	s.Add("c.1", alice)
	s.Clear()
	if _, ok := s.Use("c.1"); ok {
		t.Error("a token that was cleared is valid")
	}
}

func TestPrefix(t *testing.T) {
	seen := map[string]bool{}
	count := map[rune]int{}
	for range 2000 {
		p := NewPrefix()
		if len(p) != prefixLength || strings.Trim(p, letters) != "" || seen[p] {
			t.Fatalf("%q", p)
		}
		seen[p] = true
		for _, c := range p {
			count[c]++
		}
	}
	for _, c := range letters {
		// 615 are expected of each.
		if n := count[c]; n < 450 || n > 800 {
			t.Errorf("%c came %d times", c, n)
		}
	}
}

func FuzzPosition(f *testing.F) {
	for _, s := range []string{"", ".", "abcdefgh.12", "a.b", "a.1.2", "a.18446744073709551615", "a.18446744073709551616", "a.-1", "a.+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		index, ok := Position(token)
		if !ok && index != 0 {
			t.Errorf("%q: %d", token, index)
		}
		if ok && strings.Count(token, ".") != 1 {
			t.Errorf("%q has a position", token)
		}
	})
}

// pems writes a pair of keys in PEM form and returns the names of the files.
func pems(t testing.TB, private any, public any) (priv, pub string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte, err error) string {
		t.Helper()
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	priv = write("key", "PRIVATE KEY", der, err)
	der, err = x509.MarshalPKIXPublicKey(public)
	return priv, write("pub", "PUBLIC KEY", der, err)
}

type keyPair struct{ private, public any }

func pairs(t testing.TB) map[string]keyPair {
	out := map[string]keyPair{}
	r, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"} {
		out[m] = keyPair{r, &r.PublicKey}
	}
	for m, c := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		k, err := ecdsa.GenerateKey(c, rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		out[m] = keyPair{k, &k.PublicKey}
	}
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	out["EdDSA"] = keyPair{priv, pub}
	return out
}

func parse(t testing.TB, options string) *JWT {
	t.Helper()
	j, unknown, err := ParseJWT(options)
	if err != nil || len(unknown) > 0 {
		t.Fatalf("%s: %q, %v", options, unknown, err)
	}
	return j
}

// Every method signs, and verifies with the public half alone; no other method's token is believed, nor one that
// was changed, is over, or says nothing.
func TestEveryMethod(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdef0123456789abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]*JWT{}
	for _, m := range []string{"HS256", "HS384", "HS512"} {
		all[m] = parse(t, "sign-method="+m+",priv-key="+secret+",pub-key="+secret)
	}
	id := auth.Identity{User: "alice", Revision: 7}
	for m, k := range pairs(t) {
		priv, pub := pems(t, k.private, k.public)
		all[m] = parse(t, "sign-method="+m+",priv-key="+priv+",pub-key="+pub)
		token, err := parse(t, "sign-method="+m+",priv-key="+priv).Sign(id)
		if err != nil {
			t.Fatal(err)
		}
		half := parse(t, "sign-method="+m+",pub-key="+pub)
		if got, ok := half.Verify(token); !ok || got != id {
			t.Errorf("%s: %+v, %v", m, got, ok)
		}
		if _, err := half.Sign(id); err != ErrVerifyOnly {
			t.Errorf("%s: %v", m, err)
		}
	}
	if len(all) != len(methods()) {
		t.Errorf("%d of %q were tried", len(all), methods())
	}
	for m, j := range all {
		token, err := j.Sign(id)
		if err != nil {
			t.Fatal(err)
		}
		for n, k := range all {
			if _, ok := k.Verify(token); ok != (m == n) {
				t.Errorf("a token of %s by %s: %v", m, n, ok)
			}
		}
		for _, i := range []int{0, len(token) / 3, len(token) - 2} {
			b := []byte(token)
			b[i] ^= 1
			if _, ok := j.Verify(string(b)); ok {
				t.Errorf("%s: a token that was changed at %d is believed", m, i)
			}
		}
	}
}

func TestClaims(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := parse(t, "sign-method=HS256,priv-key="+secret)
	sign := func(key any, m jwt.SigningMethod, c jwt.MapClaims) string {
		s, err := jwt.NewWithClaims(m, c).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	good := jwt.MapClaims{"username": "alice", "revision": 3, "exp": time.Now().Add(time.Minute).Unix()}
	if got, ok := j.Verify(sign([]byte("secret"), jwt.SigningMethodHS256, good)); !ok || got != (auth.Identity{User: "alice", Revision: 3}) {
		t.Fatalf("%+v, %v", got, ok)
	}
	for name, token := range map[string]string{
		"none":               sign(jwt.UnsafeAllowNoneSignatureType, jwt.SigningMethodNone, good),
		"another secret":     sign([]byte("other"), jwt.SigningMethodHS256, good),
		"over":               sign([]byte("secret"), jwt.SigningMethodHS256, jwt.MapClaims{"username": "alice", "revision": 3, "exp": time.Now().Add(-time.Minute).Unix()}),
		"no user":            sign([]byte("secret"), jwt.SigningMethodHS256, jwt.MapClaims{"revision": 3}),
		"no revision":        sign([]byte("secret"), jwt.SigningMethodHS256, jwt.MapClaims{"username": "alice"}),
		"a negative one":     sign([]byte("secret"), jwt.SigningMethodHS256, jwt.MapClaims{"username": "alice", "revision": -1}),
		"one that is larger": sign([]byte("secret"), jwt.SigningMethodHS256, jwt.MapClaims{"username": "alice", "revision": 1e300}),
		"one as a text":      sign([]byte("secret"), jwt.SigningMethodHS256, jwt.MapClaims{"username": "alice", "revision": "3"}),
		"nothing":            "", "dots": "..",
	} {
		if id, ok := j.Verify(token); ok {
			t.Errorf("%s: %+v", name, id)
		}
	}
}

func FuzzVerify(f *testing.F) {
	k := pairs(f)["ES256"]
	priv, pub := pems(f, k.private, k.public)
	j := parse(f, "sign-method=ES256,priv-key="+priv+",pub-key="+pub)
	id := auth.Identity{User: "alice", Revision: 7}
	good, err := j.Sign(id)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		if got, ok := j.Verify(token); ok && got != id {
			t.Errorf("%q names %+v", token, got)
		}
	})
}

func TestKeysBelongTogether(t *testing.T) {
	a, b := pairs(t), pairs(t)
	for _, m := range []string{"RS256", "ES256", "EdDSA"} {
		priv, _ := pems(t, a[m].private, a[m].public)
		_, pub := pems(t, b[m].private, b[m].public)
		if _, _, err := ParseJWT("sign-method=" + m + ",priv-key=" + priv + ",pub-key=" + pub); err == nil || !strings.Contains(err.Error(), errMismatch.Error()) {
			t.Errorf("%s: %v", m, err)
		}
	}
	// A key on another curve than the method's, and one of another kind.
	priv, _ := pems(t, a["ES384"].private, a["ES384"].public)
	for _, m := range []string{"ES256", "RS256", "EdDSA"} {
		if _, _, err := ParseJWT("sign-method=" + m + ",priv-key=" + priv); err == nil {
			t.Errorf("%s with a key on P-384", m)
		}
	}
	if _, unknown, err := ParseJWT("sign-method=ES384,priv-key=" + priv + ",what=ever"); err != nil || len(unknown) != 1 || unknown[0] != "what" {
		t.Errorf("%q, %v", unknown, err)
	}
}
