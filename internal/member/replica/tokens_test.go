package replica

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// A member that lags or starts again does not accept a token that has expired on the others,
// although it applies the entry that issued the token only now.
func TestExpiredTokensStayExpired(t *testing.T) {
	g := startGroup(t, func(i int, c *Config) {
		c.BcryptCost, c.TokenTTL = 4, 250*time.Millisecond
		if i == 3 {
			c.TokenTTL = time.Hour // by its own clock a token would be valid
		}
	})
	lead, late := g.leader(), g.list[2]
	if lead == late {
		if err := lead.Leadership.MoveLeader(t.Context(), g.list[0].memberID); err != nil {
			t.Fatal(err)
		}
		lead = g.leader()
	}
	secure(t, lead)
	g.caughtUp(late)
	read := func(r *Replica, token string) error {
		_, err := r.Range(withToken(t, token),
			&kv.RangeRequest{Key: []byte("k"), Serializable: true})
		return err
	}
	for name, back := range map[string]func() *Replica{
		"lagged": func() *Replica { return late },
		"was started again": func() *Replica {
			late = g.restart(late, nil)
			return late
		},
	} {
		known := login(t, lead, "alice")
		g.caughtUp(late)
		g.net.setCut(late.memberID, true)
		token := login(t, lead, "alice")
		issued := lead.Applied()
		await(t, "end of the token in the log",
			func() bool { return lead.Access.Tokens().Ended >= issued })
		if err := read(lead, token); !errors.Is(err, kv.ErrInvalidAuthToken) {
			t.Errorf("the token has not expired at the leader: %v", err)
		}
		if at := late.Applied(); at >= issued {
			t.Fatalf("the member that was cut off is at %d, and the token at %d", at, issued)
		}
		// A token that it knows and was never sent may have ended too.
		ctx, cancel := context.WithTimeout(withToken(t, known), 20*time.Millisecond)
		if _, err := late.Range(ctx,
			&kv.RangeRequest{Key: []byte("k"), Serializable: true}); err == nil {
			t.Error("a member that is cut off takes a token that has expired")
		}
		cancel()
		r := back()
		g.net.setCut(r.memberID, false)
		// The first call waits for what the member lacks.
		if err := read(r, token); !errors.Is(err, kv.ErrInvalidAuthToken) {
			t.Errorf("a member that %s: %v", name, err)
		}
		g.caughtUp(r)
		if err := read(r, token); !errors.Is(err, kv.ErrInvalidAuthToken) {
			t.Errorf("a member that %s and has caught up: %v", name, err)
		}
		if err := read(r, login(t, lead, "alice")); err != nil {
			t.Errorf("a new token on a member that %s: %v", name, err)
		}
	}
}

// A member that starts again does not know when the tokens in its log were issued, so they have
// ended, also if it applies their entries again.
func TestTokensEndWithTheProcess(t *testing.T) {
	replayed := 0
	for seed := range uint64(20) {
		disk := memfs.New()
		c := config(disk)
		c.BcryptCost = 4
		ended := new(atomic.Bool)
		c.Logger = strictUntil(t, ended)
		r := start(t, c)
		secure(t, r)
		token := login(t, r, "alice")
		issued := r.Applied()
		ended.Store(true)
		c.FS, c.Logger = disk.Crash(rand.New(rand.NewPCG(seed, 0))), strict(t)
		d, err := OpenData(c)
		if err != nil {
			t.Fatal(err)
		}
		if d.handle.Log.Applied().Index < issued {
			replayed++
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		r = start(t, c)
		if _, err := r.Range(withToken(t, token),
			&kv.RangeRequest{Key: []byte("k")}); !errors.Is(err, kv.ErrInvalidAuthToken) {
			t.Errorf("seed %d: a token of before the restart: %v", seed, err)
		}
	}
	if replayed == 0 {
		t.Error("no restart has applied the entry of the token again")
	}
}
