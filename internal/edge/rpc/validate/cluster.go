package validate

import (
	"net"
	"net/url"
)

// maxPeerURLs limits the URLs of one member, as the handshake between members does.
const maxPeerURLs = 16

// PeerURLs reports whether others can dial all of a member's URLs.
func PeerURLs(urls []string) bool {
	if len(urls) == 0 || len(urls) > maxPeerURLs {
		return false
	}
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil || len(s) > 512 {
			return false
		}
		switch u.Scheme {
		case "http", "https":
			if _, _, err := net.SplitHostPort(u.Host); err != nil || u.Path != "" {
				return false
			}
		case "unix", "unixs":
			if u.Host+u.Path == "" {
				return false
			}
		default:
			return false
		}
	}
	return true
}
