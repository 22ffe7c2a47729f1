package console

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"
)

// apiPrefix is the prefix of the API. requestHeader is the header that every request to it must
// have. Pages of other origins cannot send it: a browser first asks for permission, which is never
// given.
const (
	apiPrefix     = Prefix + "api/"
	requestHeader = "X-Vigil-Console"
)

// policy is the Content-Security-Policy of all responses: only the console's own files, no inline
// scripts or styles, no frames.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// bodyTimeout limits the time to receive a request, and the time to send a response that is not a
// stream.
const bodyTimeout = time.Minute

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	// Not every writer has a connection.
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	_ = control.SetWriteDeadline(time.Now().Add(bodyTimeout))
	h := w.Header()
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			h.Del(name)
		}
	}
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if text := c.closed(r); text != "" {
		http.Error(w, text, http.StatusForbidden)
		return
	}
	if !c.knownHost(r) {
		http.Error(w, fmt.Sprintf("The console does not know this member by the name %q.\n\nA page in a browser could have been led here under a name "+
			"of its own (DNS rebinding).\nUse an IP address or localhost, use TLS, or list the name: --host-whitelist", hostname(r)), http.StatusMisdirectedRequest)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, Prefix)
	if !strings.HasPrefix(r.URL.Path, apiPrefix) {
		c.serveAsset(w, r, name)
		return
	}
	h.Set("Cache-Control", "no-store")
	if text := foreign(r); text != "" {
		writeError(w, &failure{Status: http.StatusForbidden, Code: "foreign", Text: text,
			Next: "open the console itself: " + Prefix})
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, c.maxBody())
	c.api.ServeHTTP(w, r)
}

// maxBody is the largest body: base64 turns three bytes into four, and there are other fields.
func (c *Console) maxBody() int64 { return 2*int64(c.MaxRequestBytes) + 64<<10 }

// closed returns the reason why the console is not served on the connection of a request, "" if it
// is served.
func (c *Console) closed(r *http.Request) string {
	switch {
	case c.Serve == Off:
		return "The console is switched off: --console=off."
	case c.Serve == On || c.AuthEnabled() || onLoopback(r):
		return ""
	}
	return "The console is not served here: everybody who reaches this address could change all keys with a browser, because authentication is " +
		"disabled.\nOpen it on the machine of the member (http://127.0.0.1:PORT/console/), enable authentication, or start the member with --console=on."
}

// forwarding lists the headers with which a proxy says that it forwards a request of somebody else,
// who may be anywhere.
var forwarding = []string{"Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-Ip"}

// onLoopback reports whether a request comes from a program on this machine. It also checks the
// other end's address, because a kernel can be configured to route other machines' packets to
// loopback addresses.
func onLoopback(r *http.Request) bool {
	if slices.ContainsFunc(forwarding, func(name string) bool { return len(r.Header[name]) > 0 }) {
		return false
	}
	switch a := r.Context().Value(http.LocalAddrContextKey).(type) {
	case *net.TCPAddr:
		remote, err := netip.ParseAddrPort(r.RemoteAddr)
		return a.IP.IsLoopback() && err == nil && remote.Addr().Unmap().IsLoopback()
	case *net.UnixAddr:
		return true
	}
	return false
}

// knownHost reports whether the Host of a request can mean this member. With TLS the certificate
// decides that.
func (c *Console) knownHost(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	host := strings.ToLower(strings.Trim(hostname(r), "[]"))
	return net.ParseIP(host) != nil || host == "localhost" ||
		strings.HasSuffix(host, ".localhost") ||
		slices.ContainsFunc(c.Hosts,
			func(known string) bool { return strings.EqualFold(known, host) })
}

// hostname returns the host of a request without the port.
func hostname(r *http.Request) string {
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		return host
	}
	return r.Host
}

// foreign returns the reason why a request does not come from a page of the console, "" if it does.
func foreign(r *http.Request) string {
	if r.Header.Get(requestHeader) == "" {
		return "the header " + requestHeader + " is missing"
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return "the request comes from another site"
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		if err != nil || !strings.EqualFold(withoutPort(u.Scheme, u.Host),
			withoutPort(u.Scheme, r.Host)) {
			return "the request comes from a page of another origin"
		}
	}
	return ""
}

// withoutPort removes the default port of a scheme.
func withoutPort(scheme, host string) string {
	return strings.TrimSuffix(host, map[string]string{"http": ":80", "https": ":443"}[scheme])
}
