package token

import (
	"crypto/rand"
	"crypto/sha256"
	"strconv"
	"strings"
	"sync"
	"time"

	"vigil/internal/kv"
)

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	// secretLength is the number of random letters of a token: 91 bits.
	secretLength = 16

	// MaxPerUser and MaxTokens limit the tokens that a member keeps for one user, and in total. One
	// more token ends the oldest one: of that user, or of all.
	MaxPerUser = 1 << 14
	MaxTokens  = 1 << 16

	// periods is the number of periods in a time to live. The age of tokens is counted in periods.
	periods = 16
	// sweepSlice is how many tokens Sweep examines each time it locks the table.
	sweepSlice = 512
)

// The kinds of tokens.
const (
	KindSimple  = "simple"
	KindJWT     = "jwt"
	DefaultKind = KindSimple
)

// DefaultTTL is how long an unused simple token, and a JWT, is valid by default.
const DefaultTTL = 5 * time.Minute

// NewSecret returns the secret part of a new token.
func NewSecret() string {
	b := make([]byte, 0, secretLength)
	for len(b) < secretLength {
		var r [2 * secretLength]byte
		rand.Read(r[:]) // never fails
		for _, v := range r {
			// Every letter is as likely as any other.
			if v < byte(256/len(letters)*len(letters)) && len(b) < secretLength {
				b = append(b, letters[int(v)%len(letters)])
			}
		}
	}
	return string(b)
}

// Hash returns the hash by which members know a secret. A secret is too long to guess, so the hash
// needs no salt and no work factor.
func Hash(secret string) string {
	h := sha256.Sum256([]byte(secret))
	return string(h[:])
}

// Format returns the token with a secret that the entry at an index issued.
func Format(secret string, index uint64) string {
	return secret + "." + strconv.FormatUint(index, 10)
}

// ID identifies a token: by the hash of its secret, and the index in the log at which it was
// issued.
type ID struct {
	Hash  string
	Index uint64
}

// Parse returns the ID of a token that a client sent.
func Parse(token string) (id ID, ok bool) {
	secret, digits, ok := strings.Cut(token, ".")
	if !ok {
		return ID{}, false
	}
	index, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || strconv.FormatUint(index, 10) != digits {
		return ID{}, false
	}
	return ID{Hash(secret), index}, true
}

// Simple holds the simple tokens of this member, which the log distributes to all members. They
// expire when they were not used here for a time, and are lost with the process. It is safe for
// concurrent use.
type Simple struct {
	ttl    time.Duration
	period time.Duration
	// old is the last index in the log of an earlier run of the member, whose tokens have ended.
	old uint64
	now func() time.Time

	mu struct {
		sync.Mutex
		tokens map[string]*entry // by the hash of the secret
		users  map[string]*holder
		all    list[byIndex] // in the order of the log
		// next is the next entry that Sweep examines, nil for the first one.
		next *entry
		// unused is the index up to which tokens that were not used here have ended.
		unused uint64
		// issued holds the newest periods in which tokens were issued that have not ended yet.
		issued  []period
		evicted uint64
	}
}

// period is a period of time in which tokens were issued. index is the index of the last one.
type period struct {
	begin time.Time
	index uint64
}

// holder is a user with tokens. After a change of its password the user is another holder.
type holder struct {
	seen kv.Seen
	list list[byUser]
}

type entry struct {
	ID
	holder *holder
	until  time.Time
	used   bool

	inAll, ofUser links
}

// NewSimple returns an empty table. ttl is how long an unused token is valid; 0 or less means the
// default. Add ignores tokens that the log has at or before the index old: nobody knows when they
// were issued.
func NewSimple(ttl time.Duration, old uint64) *Simple {
	if ttl <= 0 {
		ttl = DefaultTTL
	}
	s := &Simple{ttl: ttl, period: ttl / periods, old: old, now: time.Now}
	s.Clear()
	return s
}

// Period is how often Expired and Sweep have something to do while tokens are issued.
func (s *Simple) Period() time.Duration { return s.period }

// Add adds a token. The apply goroutine calls it, in the order of the log, so that all members
// evict the same tokens.
func (s *Simple) Add(id ID, seen kv.Seen) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if n := len(s.mu.issued); n > 0 && now.Sub(s.mu.issued[n-1].begin) < s.period {
		s.mu.issued[n-1].index = id.Index
	} else {
		if n == 2*periods {
			// its tokens end with the next period's
			s.mu.issued = append(s.mu.issued[:0], s.mu.issued[1:]...)
		}
		s.mu.issued = append(s.mu.issued, period{now, id.Index})
	}
	if id.Index <= s.old || s.mu.tokens[id.Hash] != nil {
		return
	}
	h := s.mu.users[seen.User]
	if h == nil || h.seen != seen {
		h = &holder{seen: seen}
		s.mu.users[seen.User] = h
	}
	switch {
	case h.list.n >= MaxPerUser:
		s.evict(h.list.first)
	case s.mu.all.n >= MaxTokens:
		s.evict(s.mu.all.first)
	}
	e := &entry{ID: id, holder: h, until: now.Add(s.ttl)}
	s.mu.tokens[id.Hash] = e
	s.mu.all.push(e)
	h.list.push(e)
}

func (s *Simple) evict(e *entry) {
	s.remove(e)
	s.mu.evicted++
}

// remove removes a token. The caller holds mu.
func (s *Simple) remove(e *entry) {
	if s.mu.next == e {
		s.mu.next = e.inAll.next
	}
	delete(s.mu.tokens, e.Hash)
	s.mu.all.remove(e)
	e.holder.list.remove(e)
	if user := e.holder.seen.User; e.holder.list.n == 0 && s.mu.users[user] == e.holder {
		delete(s.mu.users, user)
	}
}

// expired reports whether a token is no longer valid. The caller holds mu.
func (s *Simple) expired(e *entry, now time.Time) bool {
	return now.After(e.until) || !e.used && e.Index <= s.mu.unused
}

// Use returns the user of a token and renews its time to live.
func (s *Simple) Use(id ID) (kv.Seen, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mu.tokens[id.Hash]
	if e == nil || e.Index != id.Index {
		return kv.Seen{}, false
	}
	now := s.now()
	if s.expired(e, now) {
		s.remove(e)
		return kv.Seen{}, false
	}
	e.until, e.used = now.Add(s.ttl), true
	return e.holder.seen, true
}

// IsUnused reports whether a token has not been used here yet. If the member lags, the token may
// have ended already.
func (s *Simple) IsUnused(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.mu.tokens[id.Hash]
	return e != nil && e.Index == id.Index && !e.used
}

// Expired returns the index up to which tokens were issued at least a time to live ago, by the
// clock of this member, if End has not been called with it.
func (s *Simple) Expired() (index uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, p := range s.mu.issued {
		if now.Sub(p.begin) < s.period+s.ttl {
			break
		}
		index, ok = p.index, true
	}
	return index, ok
}

// End ends tokens that were issued up to an index and were not used here: a time to live has passed
// at the leader. On a member that did not lag they have expired.
func (s *Simple) End(index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.unused = max(s.mu.unused, index)
	n := 0
	for n < len(s.mu.issued) && s.mu.issued[n].index <= index {
		n++
	}
	s.mu.issued = append(s.mu.issued[:0], s.mu.issued[n:]...)
}

// Sweep removes expired tokens.
func (s *Simple) Sweep() {
	for s.sweepSlice() {
	}
}

// sweepSlice looks at the next tokens, and reports whether there are more.
func (s *Simple) sweepSlice() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.next == nil {
		s.mu.next = s.mu.all.first
	}
	now := s.now()
	for range sweepSlice {
		e := s.mu.next
		if e == nil {
			return false
		}
		s.mu.next = e.inAll.next
		if s.expired(e, now) {
			s.remove(e)
		}
	}
	return s.mu.next != nil
}

// Clear removes all tokens.
func (s *Simple) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tokens, s.mu.users = map[string]*entry{}, map[string]*holder{}
	s.mu.all, s.mu.next, s.mu.issued = list[byIndex]{}, nil, nil
}

// Stats are counts of a table.
type Stats struct {
	// Tokens is the number of tokens that are kept; some of them may have expired.
	Tokens int
	// Evicted is the number of tokens that ended because there were too many.
	Evicted uint64
	// Ended is the index in the log up to which unused tokens have ended.
	Ended uint64
}

// Stats returns the present counts.
func (s *Simple) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Tokens: s.mu.all.n, Evicted: s.mu.evicted, Ended: s.mu.unused}
}
