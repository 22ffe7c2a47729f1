package console

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/kv"
)

// credentials are what a request carries. User is what the browser claims: only calls with the token verify it.
type credentials struct {
	User, Token string
	certificate bool // User is the name in a verified certificate, and there is no token
}

// maxCookie limits a session: browsers keep no larger cookies.
const maxCookie = 4096

// cookieName returns the name of the session's cookie. Cookies of a host are shared by all its ports, so it names the cluster.
func (c *Console) cookieName() string { return fmt.Sprintf("vigil-console-%x", c.Self.Cluster) }

// credentials returns the credentials of a request: the session, or else the certificate if certificates name users.
func (c *Console) credentials(r *http.Request) credentials {
	if k, err := r.Cookie(c.cookieName()); err == nil && len(k.Value) <= maxCookie {
		var who credentials
		if b, err := base64.RawURLEncoding.DecodeString(k.Value); err == nil && json.Unmarshal(b, &who) == nil && who.Token != "" {
			return who
		}
	}
	if c.CertificateUsers && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 && len(r.TLS.VerifiedChains[0]) > 0 {
		return credentials{User: r.TLS.VerifiedChains[0][0].Subject.CommonName, certificate: true}
	}
	return credentials{}
}

// requireAdmin returns an error if the request's user does not have the role root.
func (c *Console) requireAdmin(r *request) error {
	return c.RequireAdmin(kv.WithCredentials(r.ctx, r.who.identity()))
}

// identity returns the credentials as the rules of users need them.
func (k credentials) identity() *kv.Credentials {
	out := &kv.Credentials{Token: k.Token, HasToken: k.Token != ""}
	if k.certificate {
		out.CommonName, out.HasCertificate = k.User, true
	}
	return out
}

// session describes the reader and the member.
type session struct {
	Cluster string `json:"cluster"`
	Member  string `json:"member"`
	Name    string `json:"name"`
	Version string `json:"version"`
	// Endpoints are for commands, if the address of the page is not one.
	Endpoints string `json:"endpoints,omitempty"`
	// Auth is set while users must identify themselves, Secure if the connection is encrypted or does not leave the machine.
	Auth   bool `json:"auth"`
	Secure bool `json:"secure"`
	// User is empty without a valid session. Root is set if the user may do everything.
	User        string `json:"user"`
	Certificate bool   `json:"certificate,omitempty"`
	Root        bool   `json:"root"`
	Expired     bool   `json:"expired,omitempty"`
	// Ranges are the ranges of keys that the user may use, if not all.
	Ranges []permission `json:"ranges,omitempty"`
}

// permission is a range of keys of a role.
type permission struct {
	Key   []byte `json:"key"`
	End   []byte `json:"end,omitempty"`
	Read  bool   `json:"read"`
	Write bool   `json:"write"`
}

// permissions returns the permissions of a role for which there is room.
func (r *room) permissions(list []*authpb.Permission) []permission {
	out := []permission{}
	for _, p := range list {
		if !r.take(len(p.Key) + len(p.RangeEnd) + 50) { // with the names of the fields
			break
		}
		both := p.PermType == authpb.READWRITE // a type that is not known allows nothing
		out = append(out, permission{p.Key, p.RangeEnd, both || p.PermType == authpb.READ, both || p.PermType == authpb.WRITE})
	}
	return out
}

// Limits of what a session lists of its user.
const (
	maxRoles  = 100
	maxRanges = 1000
)

func (c *Console) serveSession(r *request) (any, error) {
	s := &session{Cluster: hexadecimal(c.Self.Cluster), Member: hexadecimal(c.Self.Member), Name: c.Self.Name, Version: c.Self.Version,
		Endpoints: c.Endpoints, Auth: c.AuthEnabled(), Secure: r.TLS != nil || onLoopback(r.Request)}
	if !s.Auth {
		s.Root = true
		return s, nil
	}
	if r.who.User == "" {
		return s, nil
	}
	u, err := c.auth.UserGet(r.ctx, &etcdserverpb.AuthUserGetRequest{Name: r.who.User})
	if err != nil {
		if f := describe(err); f.Code == "login" || f.Code == "denied" || f.Code == "request" {
			s.Expired = r.who.Token != ""
			return s, nil
		}
		return nil, err
	}
	s.User, s.Certificate = r.who.User, r.who.certificate
	s.Root = slices.Contains(u.Roles, "root")
	left := room(maxPageBytes)
	for _, name := range u.Roles[:min(len(u.Roles), maxRoles)] {
		if s.Root {
			break
		}
		role, err := c.auth.RoleGet(r.ctx, &etcdserverpb.AuthRoleGetRequest{Role: name})
		if err != nil {
			return nil, err
		}
		list := left.permissions(role.Perm)
		s.Ranges = append(s.Ranges, list[:min(len(list), max(0, maxRanges-len(s.Ranges)))]...)
	}
	return s, nil
}

func hexadecimal(n uint64) string { return strconv.FormatUint(n, 16) }

func (c *Console) serveLogin(w http.ResponseWriter, r *http.Request) {
	var in struct{ Name, Password string }
	ctx := r.Context()
	q := c.request(ctx, func() {}, r)
	if err := q.decode(&in); err != nil {
		writeError(w, err)
		return
	}
	res, err := c.auth.Authenticate(q.ctx, &etcdserverpb.AuthenticateRequest{Name: in.Name, Password: in.Password})
	if err != nil {
		f := describe(err)
		if f.Code == "request" {
			f = &failure{Status: http.StatusUnauthorized, Code: "login", Text: f.Text, Next: "check the name and the password"}
		}
		writeError(w, f)
		return
	}
	b, err := json.Marshal(credentials{User: in.Name, Token: res.Token})
	if err != nil {
		writeError(w, err)
		return
	}
	value := base64.RawURLEncoding.EncodeToString(b)
	if len(value) > maxCookie-len(c.cookieName())-200 {
		writeError(w, &failure{Status: http.StatusBadRequest, Code: "request", Text: "the token is too long for a cookie", Next: "use tokens with fewer claims, or a client certificate"})
		return
	}
	c.setCookie(w, r, value, 0)
	writeJSON(w, http.StatusOK, struct{}{})
}

func (c *Console) serveLogout(w http.ResponseWriter, r *http.Request) {
	c.setCookie(w, r, "", -1)
	writeJSON(w, http.StatusOK, struct{}{})
}

func (c *Console) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	http.SetCookie(w, &http.Cookie{Name: c.cookieName(), Value: value, Path: Prefix, MaxAge: age, HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode})
}
