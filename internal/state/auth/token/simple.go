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
	// prefixLength is how many letters a token begins with: 91 bits that nobody can guess.
	prefixLength = 16

	// minSweep is the least number of tokens at which those that have expired are looked for.
	minSweep = 1 << 10
)

// The kinds of tokens.
const (
	KindSimple  = "simple"
	KindJWT     = "jwt"
	DefaultKind = KindSimple
)

// DefaultTTL is how long a simple token that is not used, and a JWT, is valid by default.
const DefaultTTL = 5 * time.Minute

// Simple is the tokens that this member knows: random ones, which the log has told to all members. They are
// forgotten when they were not used here for a time, and with the process. It is safe for concurrent use.
type Simple struct {
	ttl time.Duration
	now func() time.Time

	mu struct {
		sync.Mutex
		tokens map[string]*entry
		// sweep is the number of tokens at which those that have expired go.
		sweep int
	}
}

type entry struct {
	seen  kv.Seen
	until time.Time
}

// NewSimple returns an empty table. ttl is how long a token is valid that is not used; 0 or less is the
// default.
func NewSimple(ttl time.Duration) *Simple {
	if ttl <= 0 {
		ttl = DefaultTTL
	}
	s := &Simple{ttl: ttl, now: time.Now}
	s.Clear()
	return s
}

// NewPrefix returns the part of a new token that is random.
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

// Position returns the position in the log at which a token was issued, as the token says itself.
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

// Add makes a token known.
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

// Use returns to whom a token was issued, and lets its time begin anew.
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

// Clear forgets all tokens.
func (s *Simple) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tokens, s.mu.sweep = map[string]*entry{}, minSweep
}
