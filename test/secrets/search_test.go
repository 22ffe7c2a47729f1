package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// recorder is a test that only counts errors.
type recorder struct {
	testing.TB
	errors int
}

func (r *recorder) Errorf(string, ...any) { r.errors++ }
func (r *recorder) Helper()               {}

// The search finds what it is meant to find.
func TestSearch(t *testing.T) {
	secret := []byte("h9!kQ_zw7Rt-4mVb")
	s := newSearch()
	s.add(t, "the secret", secret)
	part := secret[4:13]
	for name, text := range map[string]string{
		"the secret": string(secret), "a part": string(part),
		"hexadecimal": hex.EncodeToString(part), "large digits": fmt.Sprintf("%X", part),
		"base64":           base64.StdEncoding.EncodeToString(part),
		"base64 in a text": base64.URLEncoding.EncodeToString(append([]byte("xy"), part...)),
		"base64 at another offset": base64.StdEncoding.EncodeToString(append([]byte("x"),
			append(bytes.Clone(part), 'y')...)),
	} {
		r := &recorder{TB: t}
		if s.in(r, name, []byte("before "+text+" after")); r.errors != 1 {
			t.Errorf("%s: %d finds", name, r.errors)
		}
	}
	r := &recorder{TB: t}
	s.in(r, "others", append(make([]byte, 100), "h9!kQ_z and w7Rt-4m are too short"...))
	if r.errors != 0 {
		t.Errorf("%d finds where there is nothing", r.errors)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := unzip(t, z.EncodeAll(secret, []byte("header"))); !bytes.Contains(got, secret) {
		t.Errorf("%q in a compressed object", got)
	}
}
