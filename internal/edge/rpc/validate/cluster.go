package validate

import (
	"net"
	"net/url"
	"strings"
)

// maxPeerURLs limits the URLs of one member, as the handshake between members does.
const maxPeerURLs = 16

// PeerURLs returns a member's URLs as they are stored, without surrounding spaces and with the
// scheme in lower case. ok says whether others can dial all of them.
func PeerURLs(urls []string) (stored []string, ok bool) {
	if len(urls) == 0 || len(urls) > maxPeerURLs {
		return nil, false
	}
	for _, s := range urls {
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil || len(s) > 512 {
			return nil, false
		}
		switch u.Scheme {
		case "http", "https":
			if _, _, err := net.SplitHostPort(u.Host); err != nil || u.Path != "" {
				return nil, false
			}
		case "unix", "unixs":
			if u.Host+u.Path == "" {
				return nil, false
			}
		default:
			return nil, false
		}
		stored = append(stored, u.String())
	}
	return stored, true
}
