package pool

import (
	"errors"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in, name, authority string
		scheme              Scheme
	}{
		{"host:1", "host:1", "host:1", SchemeNone},
		{"http://host:1/", "host:1", "host:1", SchemePlain},
		{"https://[::1]:1", "[::1]:1", "[::1]:1", SchemeSecure},
		{"unix:///run/v.sock", "unix:/run/v.sock", "localhost", SchemePlain},
		{"unix:/run/v.sock", "unix:/run/v.sock", "localhost", SchemePlain},
		{"unixs:///run/v.sock", "unix:/run/v.sock", "localhost", SchemeSecure},
	} {
		e, err := Parse(c.in)
		if err != nil || e.String() != c.name || e.Scheme != c.scheme || e.authority("") != c.authority || e.authority("name") != "name" {
			t.Errorf("%s: %+v, %v", c.in, e, err)
		}
	}
	for _, in := range []string{"", "host", "host:", "ftp://host:1", "unix:"} {
		if e, err := Parse(in); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %+v, %v", in, e, err)
		}
	}
}
