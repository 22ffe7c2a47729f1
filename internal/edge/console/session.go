package console

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/internal/kv"
)

// credentials are what a request carries. User is what the browser claims: only calls with the
// token verify it.
type credentials struct {
	User, Token string
	certificate bool // User is the name in a verified certificate, and there is no token
}

// maxCookie limits a session: browsers keep no larger cookies.
const maxCookie = 4096

// cookieName returns the name of the session's cookie. Cookies of a host are shared by all its
// ports, so it names the cluster.
func (c *Console) cookieName() string { return fmt.Sprintf("vigil-console-%x", c.Self.Cluster) }

// credentials returns the credentials of a request: the session, or else the certificate if
// certificates name users.
func (c *Console) credentials(r *http.Request) credentials {
	if k, err := r.Cookie(c.cookieName()); err == nil && len(k.Value) <= maxCookie {
		var who credentials
		if b, err := base64.RawURLEncoding.DecodeString(k.Value); err == nil &&
			json.Unmarshal(b, &who) == nil && who.Token != "" {
			return who
		}
	}
	if c.CertificateUsers && r.TLS != nil && len(r.TLS.VerifiedChains) > 0 &&
		len(r.TLS.VerifiedChains[0]) > 0 {
		return credentials{User: r.TLS.VerifiedChains[0][0].Subject.CommonName, certificate: true}
	}
	return credentials{}
}

// adminOnly returns an error that says what only users with the role root may do, if the user of a
// request does not have it.
func (c *Console) adminOnly(r *request, what string) error {
	err := c.RequireAdmin(kv.WithCredentials(r.ctx, r.who.identity()))
	if err == nil {
		return nil
	}
	if f := describe(err); f.Code == "leaderless" || f.Code == "timeout" {
		return f
	}
	return &failure{Status: http.StatusForbidden, Code: "denied", Text: what + ": " + err.Error(),
		Next: "log in as a user with the role root"}
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
	// Auth is set while users must identify themselves, Secure if the connection is encrypted or
	// does not leave the machine.
	Auth   bool `json:"auth"`
	Secure bool `json:"secure"`
	// User is empty without a valid session. Root is set if the user may do everything.
	User        string `json:"user"`
	Certificate bool   `json:"certificate,omitempty"`
	Root        bool   `json:"root"`
	Expired     bool   `json:"expired,omitempty"`
	// Ranges are the ranges of keys that the user may use, if not all.
	Ranges []permission `json:"ranges,omitempty"`
	// Members are where the consoles of the members are, for a reader whose member does not answer
	// later.
	Members []place `json:"members,omitempty"`
}

// place is a member with its addresses for clients.
type place struct {
	Name       string   `json:"name"`
	Self       bool     `json:"self,omitempty"`
	ClientURLs []string `json:"client_urls"`
}

// places returns the members. Without the right to see them there are none.
func (c *Console) places(r *request) (out []place) {
	list, err := c.cluster.MemberList(r.ctx, &etcdserverpb.MemberListRequest{Linearizable: false})
	if err != nil {
		return nil
	}
	for _, m := range list.Members {
		out = append(out, place{m.Name, m.ID == c.Self.Member, m.ClientURLs})
	}
	return out
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
		out = append(out, permission{p.Key, p.RangeEnd, both || p.PermType == authpb.READ, both ||
			p.PermType == authpb.WRITE})
	}
	return out
}

// maxRanges limits what a session lists of its user.
const maxRanges = 1000

// serveSession describes the reader.
func (c *Console) serveSession(r *request) (any, error) {
	s := &session{Cluster: hexadecimal(c.Self.Cluster), Member: hexadecimal(c.Self.Member),
		Name: c.Self.Name, Version: c.Self.Version,
		Endpoints: c.Endpoints, Auth: c.AuthEnabled(), Secure: r.TLS != nil ||
			onLoopback(r.Request)}
	if !s.Auth {
		s.Root, s.Members = true, c.places(r)
		return s, nil
	}
	// By what this member knows, so that a session lasts while there is no leader.
	name, root, permissions, err := c.Rights(kv.WithCredentials(r.ctx, r.who.identity()))
	switch {
	case errors.Is(err, kv.ErrInvalidAuthToken) || err == nil && name == "":
		s.Expired = r.who.Token != ""
		return s, nil
	case err != nil:
		return nil, err
	}
	s.User, s.Certificate, s.Root, s.Members = name, r.who.certificate, root, c.places(r)
	if !root {
		left := room(maxPageBytes)
		for _, p := range permissions[:min(len(permissions), maxRanges)] {
			s.Ranges = append(s.Ranges,
				left.permissions([]*authpb.Permission{{PermType: authpb.Permission_Type(p.Type),
					Key: p.Key, RangeEnd: p.End}})...)
		}
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
	res, err := c.auth.Authenticate(q.ctx,
		&etcdserverpb.AuthenticateRequest{Name: in.Name, Password: in.Password})
	if err != nil {
		f := describe(err)
		if f.Code == "request" {
			f = &failure{Status: http.StatusUnauthorized, Code: "login", Text: f.Text,
				Next: "check the name and the password"}
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
		writeError(w, &failure{Status: http.StatusBadRequest, Code: "request",
			Text: "the token is too long for a cookie",
			Next: "use tokens with fewer claims, or a client certificate"})
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
	http.SetCookie(w, &http.Cookie{Name: c.cookieName(), Value: value, Path: Prefix, MaxAge: age,
		HttpOnly: true, Secure: r.TLS != nil,
		SameSite: http.SameSiteStrictMode})
}
