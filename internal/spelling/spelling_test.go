package spelling

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"get", "put", "del", "list", "status", "data-dir", "listen-client-urls",
		"listen-peer-urls"}
	for word, want := range map[string]string{
		"gte": "get", "pt": "put", "lst": "list", "lisst": "list", "stauts": "status",
		"data-dirr": "data-dir", "datadir": "data-dir",
		"listen-client-url": "listen-client-urls", "listen-clientsurls": "listen-client-urls",
		"nonsense": "", "x": "", "": "", "data": "",
	} {
		if got := Nearest(word, known); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1},
		{"abc", "bac", 1}, {"abcd", "badc", 2}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestQuoteWords(t *testing.T) {
	for word, want := range map[string]string{
		"a/b.c:1,d=e%+@-_": "a/b.c:1,d=e%+@-_", "": "''", "my data": "'my data'",
		"it's": `'it'\''s'`, "$(x)": "'$(x)'", "http://[::1]:2379": "'http://[::1]:2379'",
		"a;b": "'a;b'", "~": "'~'",
	} {
		if got := QuoteWords(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
	if got := QuoteWords("a", "b c"); got != "a 'b c'" {
		t.Error(got)
	}
}
