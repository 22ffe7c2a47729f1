package transport

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/metadata"
)

// TestMetadata: the metadata of a request have all values of each name in their order, whichever
// names lie between them, and one that is appended to changes no other.
func TestMetadata(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	l := lastMetadata{base: context.Background()}
	for range 2000 {
		var fields []hpack.HeaderField
		want := metadata.MD{}
		for i := range random.IntN(30) {
			f := hpack.HeaderField{Name: fmt.Sprint("n", random.IntN(4)), Value: fmt.Sprint(i)}
			fields = append(fields, f)
			want[f.Name] = append(want[f.Name], f.Value)
		}
		for range 2 { // the same again comes from the request before
			m := l.metadataOf(fields)
			md := m.md
			if in, _ := metadata.FromIncomingContext(m.values); !maps.EqualFunc(md, want,
				slices.Equal) || !maps.EqualFunc(in, want, slices.Equal) {
				t.Fatalf("%v became %v, in the context %v", fields, md, in)
			}
			for name := range md {
				_ = append(md[name], "more")
			}
		}
	}
}

// TestRepeatedField: a header with many values takes about the memory of its values, and that of
// the fields only if it is kept for the next request.
func TestRepeatedField(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"a", "b"}} {
		fields := make([]hpack.HeaderField, 900)
		for i := range fields {
			fields[i].Name = names[i%len(names)]
		}
		l := lastMetadata{base: context.Background()}
		const rounds = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range rounds {
			l.metadataOf(fields)
		}
		runtime.ReadMemStats(&after)
		took := (after.TotalAlloc - before.TotalAlloc) / rounds
		// A string has 16 bytes; a list that grows takes up to four times as much, with what it has
		// grown from.
		if most := uint64(len(names)) * (900*16*2 + 4<<10); took > most {
			t.Errorf("%d bytes for values of %d names, more than %d", took, len(names), most)
		}
	}
}
