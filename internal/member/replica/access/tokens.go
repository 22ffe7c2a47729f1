package access

import (
	"context"
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/auth/token"
	"vigil/internal/state/fsm"
)

// maxTokenRound is the longest pause between two rounds of Run.
const maxTokenRound = 10 * time.Second

// AddToken makes a simple token valid. The apply goroutine calls it.
func (c *Control) AddToken(t fsm.Token) {
	c.tokens.Add(token.ID{Hash: t.Hash, Index: t.Index}, t.Seen)
}

// EndTokens ends the tokens that entries up to an index issued and that were not used here. The
// apply goroutine calls it.
func (c *Control) EndTokens(index uint64) { c.tokens.End(index) }

// TokenStats are counts of the simple tokens of a member.
type TokenStats = token.Stats

// Tokens returns counts of the simple tokens.
func (c *Control) Tokens() TokenStats { return c.tokens.Stats() }

// Run removes expired simple tokens until ctx ends. While this member leads, it proposes to the
// other members to end the tokens too.
func (c *Control) Run(ctx context.Context) {
	tick := time.NewTicker(min(c.tokens.Period(), maxTokenRound))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.tokens.Sweep()
		if index, ok := c.tokens.Expired(); ok && c.pipe.LeadTerm() != 0 {
			c.proposeEnd(ctx, index)
		}
	}
}

func (c *Control) proposeEnd(ctx context.Context, index uint64) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	if _, err := c.pipe.Propose(ctx,
		&fsm.Request{Auth: &kv.AuthRequest{Op: kv.TokensEnd, Index: index}}); err != nil {
		// The next round tries again.
		c.logger.Debug("end of tokens not proposed", slog.Any("error", err))
	}
}
