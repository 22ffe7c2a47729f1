package pool

import (
	"errors"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in, name, authority string
		scheme              Scheme
	}{
		{"host:1", "host:1", "host:1", SchemeNone},
		{"http://host:1/", "host:1", "host:1", SchemePlain},
		{"HTTP://host:1", "host:1", "host:1", SchemePlain},
		{"https://[::1]:1", "[::1]:1", "[::1]:1", SchemeSecure},
		{"unix:///run/v.sock", "unix:/run/v.sock", "localhost", SchemePlain},
		{"unix:/run/v.sock", "unix:/run/v.sock", "localhost", SchemePlain},
		{"unixs:///run/v.sock", "unix:/run/v.sock", "localhost", SchemeSecure},
	} {
		e, err := Parse(c.in)
		if err != nil || e.String() != c.name || e.Scheme != c.scheme ||
			e.authority("") != c.authority || e.authority("name") != "name" {
			t.Errorf("%s: %+v, %v", c.in, e, err)
		}
	}
	for in, want := range map[string]string{
		"": "missing port", "host:": "no port", "ftp://host:1": "is not one of http",
		"unix:": "no path", "host": "such as host:2379", "http://host": "such as http://host:2379",
		"::1": "such as [::1]:2379", "[::1]": "such as [::1]:2379",
		"a:1 b:1": "separated by commas", "a:1;b:1": "separated by commas",
		"http:/host:1": "such as http://HOST:PORT",
		"http//host:1": "is not a host", "http://host:1/v3": "leave /v3 out",
		"u:p@host:1": "contains a user or a password", "host:x": "is not a port",
	} {
		if e, err := Parse(in); !errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", in, e, err)
		}
	}
}
