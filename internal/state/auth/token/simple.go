package token

import (
	"crypto/rand"
	"strconv"
	"strings"
	"sync"
	"time"

	"vigil/internal/kv"
)

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	// prefixLength is the number of random letters of a token: 91 bits.
	prefixLength = 16

	// minSweep is the smallest number of tokens at which expired tokens are removed.
	minSweep = 1 << 10
)

// The kinds of tokens.
const (
	KindSimple  = "simple"
	KindJWT     = "jwt"
	DefaultKind = KindSimple
)

// DefaultTTL is how long an unused simple token, and a JWT, is valid by default.
const DefaultTTL = 5 * time.Minute

// Simple holds the simple tokens of this member, which the log distributes to all members. They expire when they were not
// used here for a time, and are lost with the process. It is safe for concurrent use.
type Simple struct {
	ttl time.Duration
	now func() time.Time

	mu struct {
		sync.Mutex
		tokens map[string]*entry
		// sweep is the number of tokens at which expired tokens are removed.
		sweep int
	}
}

type entry struct {
	seen  kv.Seen
	until time.Time
}

// NewSimple returns an empty table. ttl is how long an unused token is valid; 0 or less is the default.
func NewSimple(ttl time.Duration) *Simple {
	if ttl <= 0 {
		ttl = DefaultTTL
	}
	s := &Simple{ttl: ttl, now: time.Now}
	s.Clear()
	return s
}

// NewPrefix returns the random part of a new token.
func NewPrefix() string {
	b := make([]byte, 0, prefixLength)
	for len(b) < prefixLength {
		var r [2 * prefixLength]byte
		rand.Read(r[:]) // never fails
		for _, v := range r {
			// Every letter is as likely as any other.
			if v < byte(256/len(letters)*len(letters)) && len(b) < prefixLength {
				b = append(b, letters[int(v)%len(letters)])
			}
		}
	}
	return string(b)
}

// Position returns the index in the log at which a token was issued, which is a part of the token.
func Position(token string) (index uint64, ok bool) {
	_, digits, ok := strings.Cut(token, ".")
	if !ok {
		return 0, false
	}
	index, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, false
	}
	return index, true
}

// Add adds a token.
func (s *Simple) Add(token string, seen kv.Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if len(s.mu.tokens) >= s.mu.sweep {
		for t, e := range s.mu.tokens {
			if now.After(e.until) {
				delete(s.mu.tokens, t)
			}
		}
		s.mu.sweep = max(2*len(s.mu.tokens), minSweep)
	}
	s.mu.tokens[token] = &entry{seen: seen, until: now.Add(s.ttl)}
}

// Use returns the user of a token and renews its time to live.
func (s *Simple) Use(token string) (kv.Seen, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mu.tokens[token]
	if e == nil {
		return kv.Seen{}, false
	}
	now := s.now()
	if now.After(e.until) {
		delete(s.mu.tokens, token)
		return kv.Seen{}, false
	}
	e.until = now.Add(s.ttl)
	return e.seen, true
}

// Clear removes all tokens.
func (s *Simple) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tokens, s.mu.sweep = map[string]*entry{}, minSweep
}
