package replica

import (
	"testing"

	"vigil/internal/kv"
	"vigil/internal/vfs/memfs"
)

// BenchmarkAuth measures the cost of the checks: a read of one key by this member's own, with auth
// disabled, and by a user with a token, with auth enabled.
func BenchmarkAuth(b *testing.B) {
	c := config(memfs.New())
	c.BcryptCost = 4
	r := start(b, c)
	ctx := b.Context()
	if _, err := r.Put(ctx, &kv.PutRequest{Key: []byte("k")}); err != nil {
		b.Fatal(err)
	}
	get := func(b *testing.B, with func() error) {
		b.ReportAllocs()
		for b.Loop() {
			if err := with(); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("disabled", func(b *testing.B) {
		get(b, func() error {
			_, err := r.Range(ctx, &kv.RangeRequest{Key: []byte("k")})
			return err
		})
	})
	secure(b, r)
	token := login(b, r, "alice")
	b.Run("enabled", func(b *testing.B) {
		get(b, func() error {
			_, err := r.Range(kv.WithCredentials(ctx,
				&kv.Credentials{Token: token, HasToken: true}), &kv.RangeRequest{Key: []byte("k")})
			return err
		})
	})
}
