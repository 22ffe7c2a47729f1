package token

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
)

// table is a table whose clock the test sets.
func table(ttl time.Duration, old uint64) (*Simple, *time.Time) {
	s, now := NewSimple(ttl, old), time.Unix(1000, 0)
	s.now = func() time.Time { return now }
	return s, &now
}

// issued is the ID of the token that an index of the log has issued.
func issued(index uint64) ID { return ID{Hash(fmt.Sprint("secret ", index)), index} }

func TestSimple(t *testing.T) {
	s, now := table(time.Minute, 2)
	alice := kv.Seen{User: "alice", Since: 3}
	a, b := issued(3), issued(4)
	s.Add(a, alice)
	*now = now.Add(50 * time.Second)
	if !s.IsUnused(a) {
		t.Error("a new token was used")
	}
	if seen, ok := s.Use(a); !ok || seen != alice {
		t.Fatalf("%+v, %v", seen, ok)
	}
	*now = now.Add(time.Minute) // since it was used
	if _, ok := s.Use(a); !ok || s.IsUnused(a) {
		t.Fatal("a token that is used ends")
	}
	*now = now.Add(time.Minute + 1)
	if _, ok := s.Use(a); ok {
		t.Fatal("a token that was not used for its time is valid")
	}
	s.Add(b, alice)
	for name, id := range map[string]ID{"an unknown token": issued(5), "a token with another index": {b.Hash, 3}, "a hash as the secret": {Hash(b.Hash), 4}} {
		if _, ok := s.Use(id); ok || s.IsUnused(id) {
			t.Errorf("%s is valid", name)
		}
	}
	s.Clear()
	if _, ok := s.Use(b); ok {
		t.Error("a token that was cleared is valid")
	}
	s.Add(issued(2), alice)
	if _, ok := s.Use(issued(2)); ok {
		t.Error("a token of an earlier run is valid")
	}
}

// The leader counts the time of tokens, and its end of them ends those that a member which lagged has just applied.
func TestEndOfUnusedTokens(t *testing.T) {
	leader, now := table(16*time.Minute, 0)
	alice := kv.Seen{User: "alice"}
	for i := range uint64(10) { // two in each minute
		leader.Add(issued(i+1), alice)
		*now = now.Add(30 * time.Second)
	}
	if index, ok := leader.Expired(); ok {
		t.Fatalf("tokens up to %d have expired after 5 minutes", index)
	}
	*now = now.Add(12 * time.Minute) // 17 minutes after the first one
	if index, ok := leader.Expired(); !ok || index != 2 {
		t.Fatalf("tokens up to %d have expired, %v", index, ok)
	}
	*now = now.Add(3 * time.Minute)
	index, ok := leader.Expired()
	if !ok || index != 8 {
		t.Fatalf("tokens up to %d have expired, %v", index, ok)
	}
	late, now := table(16*time.Minute, 0)
	for i := range uint64(10) {
		late.Add(issued(i+1), alice)
	}
	*now = now.Add(time.Second)
	if _, ok := late.Use(issued(1)); !ok {
		t.Fatal("a token is not valid")
	}
	late.End(index)
	for i := range uint64(10) {
		if _, ok := late.Use(issued(i + 1)); ok != (i == 0 || i >= 8) {
			t.Errorf("token %d: valid %v", i+1, ok)
		}
	}
	leader.End(index)
	if index, ok := leader.Expired(); ok {
		t.Errorf("the end of tokens up to %d is proposed again", index)
	}
	*now = now.Add(time.Hour)
	for i := range uint64(1000) { // nobody proposes an end
		*now = now.Add(time.Minute)
		late.Add(issued(i+20), alice)
	}
	if n := len(late.mu.issued); n > 2*periods {
		t.Errorf("%d periods are kept", n)
	}
}

// A user has at most MaxPerUser tokens, and all have MaxTokens: the oldest ends first, of the same user if that has too many.
func TestSimpleIsBounded(t *testing.T) {
	s, now := table(time.Hour, 0)
	index := uint64(0)
	issue := func(user string, n int) (first uint64) {
		first = index + 1
		for range n {
			index++
			s.Add(issued(index), kv.Seen{User: user, Since: 1})
		}
		return first
	}
	valid := func(index uint64) bool { return s.IsUnused(issued(index)) }
	other := issue("other", 1)
	first := issue("greedy", MaxPerUser)
	if !valid(other) || !valid(first) || s.Stats() != (Stats{Tokens: MaxPerUser + 1}) {
		t.Fatalf("%+v", s.Stats())
	}
	issue("greedy", 2)
	if !valid(other) || valid(first) || valid(first+1) || !valid(first+2) || s.Stats() != (Stats{Tokens: MaxPerUser + 1, Evicted: 2}) {
		t.Errorf("%+v", s.Stats())
	}
	// A user with another password is another holder: its old tokens are worth nothing, and do not count as its own.
	index++
	s.Add(issued(index), kv.Seen{User: "greedy", Since: 2})
	if n := s.mu.users["greedy"].list.n; n != 1 || !valid(first+2) {
		t.Errorf("%d tokens of the new password", n)
	}
	for i := 0; s.mu.all.n < MaxTokens; i++ {
		issue(fmt.Sprint("user", i%100), 1)
	}
	evicted := s.Stats().Evicted
	last := issue("last", 1)
	if valid(other) || !valid(first+2) || !valid(last) || s.Stats() != (Stats{Tokens: MaxTokens, Evicted: evicted + 1}) {
		t.Errorf("%+v", s.Stats())
	}
	// Expired tokens are removed in slices, and users without tokens.
	*now = now.Add(time.Hour + 1)
	kept := issue("kept", 1)
	slices := 1
	for s.sweepSlice() {
		if slices++; MaxTokens-s.mu.all.n > slices*sweepSlice {
			t.Fatalf("%d tokens are removed in %d slices", MaxTokens-s.mu.all.n, slices)
		}
	}
	if !valid(kept) || s.mu.all.n != 1 || len(s.mu.tokens) != 1 || len(s.mu.users) != 1 {
		t.Errorf("%d tokens in %d entries, %d users", s.mu.all.n, len(s.mu.tokens), len(s.mu.users))
	}
}

// The table against a list that is searched: random calls, and the same answers.
func TestSimpleAgainstAList(t *testing.T) {
	seed := time.Now().UnixNano()
	rnd := mathrand.New(mathrand.NewPCG(uint64(seed), 0))
	type token struct {
		id    ID
		seen  kv.Seen
		until time.Time
		used  bool
	}
	const ttl = time.Minute
	s, now := table(ttl, 0)
	var list []token
	unused := uint64(0)
	for i := range uint64(20_000) {
		switch rnd.IntN(6) {
		case 0, 1:
			seen := kv.Seen{User: fmt.Sprint(rnd.IntN(3)), Since: uint64(rnd.IntN(2))}
			s.Add(issued(i), seen)
			list = append(list, token{issued(i), seen, now.Add(ttl), false})
		case 2:
			*now = now.Add(time.Duration(rnd.IntN(int(ttl / 8))))
		case 3:
			if rnd.IntN(20) == 0 {
				unused = max(unused, i-min(i, rnd.Uint64N(100)))
				s.End(unused)
			}
		case 4:
			s.sweepSlice()
		case 5:
			if len(list) == 0 {
				continue
			}
			k := &list[len(list)-1-rnd.IntN(min(len(list), 60))]
			want := !now.After(k.until) && (k.used || k.id.Index > unused)
			got, ok := s.Use(k.id)
			if ok != want || ok && got != k.seen {
				t.Fatalf("seed %d, step %d: %+v %v, want %v", seed, i, got, ok, want)
			}
			if want {
				k.until, k.used = now.Add(ttl), true
			} else {
				k.until = time.Time{}
			}
		}
		n, first := 0, s.mu.all.first
		for e := first; e != nil; e = e.inAll.next {
			if n++; e.inAll.next != nil && e.inAll.next.Index <= e.Index {
				t.Fatalf("seed %d: the tokens are not in the order of the log", seed)
			}
		}
		held := 0
		for _, h := range s.mu.users {
			held += h.list.n
		}
		if n != s.mu.all.n || n != len(s.mu.tokens) || held > n {
			t.Fatalf("seed %d: %d tokens in a list of %d and a table of %d, users have %d", seed, n, s.mu.all.n, len(s.mu.tokens), held)
		}
	}
}

func TestSecret(t *testing.T) {
	seen := map[string]bool{}
	count := map[rune]int{}
	for range 2000 {
		p := NewSecret()
		if len(p) != secretLength || strings.Trim(p, letters) != "" || seen[p] {
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

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", ".", "abcdefgh.12", "a.b", "a.1.2", "a.18446744073709551615", "a.18446744073709551616", "a.-1", "a.+1", "a.01"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		id, ok := Parse(token)
		if !ok {
			if id != (ID{}) {
				t.Errorf("%q: %+v", token, id)
			}
			return
		}
		// One token has one form.
		secret, _, _ := strings.Cut(token, ".")
		if Format(secret, id.Index) != token || id.Hash != Hash(secret) {
			t.Errorf("%q is taken for %q", token, Format(secret, id.Index))
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
