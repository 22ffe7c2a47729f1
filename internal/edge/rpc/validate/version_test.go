package validate

import (
	"testing"

	"vigil/internal/kv"
)

func TestVersion(t *testing.T) {
	v := func(minor uint32) kv.Version { return kv.Version{Major: 3, Minor: minor} }
	for text, want := range map[string]kv.Version{
		"3.6": v(6), "3.6.0": v(6), "3.6.99": v(6), "3.6.0-alpha.1": v(6), "3.6.0-rc+meta": v(6),
		"3.6.0+meta": v(6),
		"03.06":      v(6), "3.99999999999": v(1<<32 - 1), "3.6.0-": v(6),
		"": {}, "3": {}, "v3.6": {}, "3.6.0.0": {}, "3.x": {}, "3.6-rc": {}, "-3.6.0": {},
		"3.6.0-b!d": {}, "3.99999999999999999999": {}, " 3.6": {}, "3.6 ": {},
	} {
		got, ok := Version(text)
		if ok != (want != kv.Version{}) || ok && got != want {
			t.Errorf("%q: %v, %v", text, got, ok)
		}
	}
}
