package bitflip

import (
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func TestFind(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 4, 60, 1000, 70000} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		for range 200 {
			seed := rng.Uint32()
			want := crc32.Update(seed, castagnoli, b)
			bit := rng.IntN(8 * n)
			b[bit/8] ^= 1 << (bit % 8)
			got := crc32.Update(seed, castagnoli, b)
			if found := Find(b, got, want); found != bit {
				t.Fatalf("%d bytes: bit %d, found %d", n, bit, found)
			}
			b[bit/8] ^= 1 << (bit % 8)
			bit = rng.IntN(32)
			if found := Find(b, want, want^1<<bit); found != -1-bit {
				t.Fatalf("bit %d of the checksum, found %d", bit, found)
			}
		}
		if n < 100 {
			continue
		}
		b2 := append([]byte(nil), b...)
		b2[3] ^= 0x11
		b2[n/2] ^= 0x40
		if found := Find(b2, crc32.Checksum(b2, castagnoli),
			crc32.Checksum(b, castagnoli)); found != None {
			t.Errorf("three bits: found %d", found)
		}
	}
	if Find([]byte("x"), 7, 7) != None || Find(make([]byte, Limit+1), 1, 6) != None {
		t.Error("found what is not there")
	}
}
