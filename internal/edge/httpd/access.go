package httpd

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// access rejects requests before the path is routed: of a browser that resolved a foreign name to
// this member (DNS rebinding), of pages of other origins, also over a WebSocket and with the
// cookies of the browser's user, and of clients whose certificate names a user, on paths that
// ignore certificates.
type access struct {
	*Config
	next http.Handler
}

// oldGatewayPrefix is the path of the gateway in etcd 3.3.
const oldGatewayPrefix = "/v3beta/"

const commonNameIgnored = "CommonName of client sending a request against gateway will be " +
	"ignored and not used as expected"

// ServeHTTP implements http.Handler.
func (a *access) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rest, ok := strings.CutPrefix(r.URL.Path, oldGatewayPrefix); ok {
		r.URL.Path = gatewayPrefix + rest
	}
	if r.TLS == nil {
		if host := hostname(r); !Allows(a.HostWhitelist, host) {
			boundTime(w, r)
			a.Logger.Warn("rejecting HTTP request to prevent DNS rebinding attacks", "host", host)
			http.Error(w, fmt.Sprintf("\nThe member does not know itself by this name: the Host "+
				"header was unrecognized.\n\n"+
				"A page in a browser could have reached this member under a foreign name (DNS "+
				"rebinding, CVE-2018-5702).\n"+
				"Use TLS, or list the name: --host-whitelist %q\n", host),
				http.StatusMisdirectedRequest)
			return
		}
	} else if a.Gateway != nil && strings.HasPrefix(r.URL.Path, gatewayPrefix) &&
		hasCommonName(r.TLS) && a.CertNamesUsers() {
		boundTime(w, r)
		http.Error(w, commonNameIgnored, http.StatusBadRequest)
		return
	}
	origin := r.Header.Get("Origin")
	if origin != "" && !ownOrigin(origin, r.Host) {
		if r.Header.Get("Upgrade") != "" && !Allows(a.CORS, origin) {
			boundTime(w, r)
			// A browser asks for no permission before it opens a WebSocket.
			http.Error(w, fmt.Sprintf("The origin %q may not open a WebSocket: list it in --cors.",
				origin), http.StatusForbidden)
			return
		}
		// A browser adds the cookies of its user to a WebSocket that any page opens.
		r.Header.Del("Cookie")
	}
	if Allows(a.CORS, Any) {
		allowOrigin(w, "*")
	} else if Allows(a.CORS, origin) {
		allowOrigin(w, origin)
	}
	if r.Method == http.MethodOptions {
		boundTime(w, r)
		w.WriteHeader(http.StatusOK)
		return
	}
	a.next.ServeHTTP(w, r)
}

// ownOrigin reports whether a page of an origin is served by the host of the request. The scheme
// may differ, since TLS may end before the member.
func ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil &&
		strings.EqualFold(withoutDefaultPort(u.Scheme, u.Host), withoutDefaultPort(u.Scheme, host))
}

func withoutDefaultPort(scheme, host string) string {
	return strings.TrimSuffix(host, map[string]string{"http": ":80", "https": ":443"}[scheme])
}

// Allows reports whether a list contains a name or Any, or is empty.
func Allows(list []string, name string) bool {
	return len(list) == 0 || slices.Contains(list, Any) || slices.Contains(list, name)
}

// allowOrigin may be called twice: for a request that waits until the member serves.
func allowOrigin(w http.ResponseWriter, origin string) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE")
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Allow-Headers", "accept, content-type, authorization")
}

// hostname returns the host of a request without the port.
func hostname(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		return host
	}
	return r.Host
}

func hasCommonName(state *tls.ConnectionState) bool {
	return slices.ContainsFunc(state.VerifiedChains, func(chain []*x509.Certificate) bool {
		return len(chain) > 0 && chain[0].Subject.CommonName != ""
	})
}
