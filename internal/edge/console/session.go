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

// credentials are the credentials in a request. User is the browser's claim: only calls with the
// token verify it.
type credentials struct {
	User, Token string
	certificate bool // User is from a verified certificate, and there is no token
}

// maxCookie limits a session: browsers store no larger cookies.
const maxCookie = 4096

// cookieName returns the name of the session's cookie. All ports of a host share its cookies, so
// the name contains the cluster.
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

// adminOnly returns an error unless the user of a request has the role root. The error says what
// only such users may do.
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

// identity converts the credentials to the form that the auth rules need.
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
	// Endpoints are for commands if the address of the page does not serve clients.
	Endpoints string `json:"endpoints,omitempty"`
	// Auth is set while users must identify themselves. Secure is set if the connection is
	// encrypted or stays on this machine.
	Auth   bool `json:"auth"`
	Secure bool `json:"secure"`
	// User is empty without a valid session. Root is set if the user may do everything.
	User        string `json:"user"`
	Certificate bool   `json:"certificate,omitempty"`
	Root        bool   `json:"root"`
	Expired     bool   `json:"expired,omitempty"`
	// Ranges are the key ranges that the user may access, if not all.
	Ranges []permission `json:"ranges,omitempty"`
	// Members tells where the other members' consoles are, in case this member stops answering.
	Members []place `json:"members,omitempty"`
}

// place is a member with its addresses for clients.
type place struct {
	Name       string   `json:"name"`
	Self       bool     `json:"self,omitempty"`
	ClientURLs []string `json:"client_urls"`
}

// places returns the members, or none if the reader may not see them.
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

// permission is a role's permission for a range of keys.
type permission struct {
	Key   []byte `json:"key"`
	End   []byte `json:"end,omitempty"`
	Read  bool   `json:"read"`
	Write bool   `json:"write"`
}

// permissions returns a role's permissions as far as there is room.
func (r *room) permissions(list []*authpb.Permission) []permission {
	out := []permission{}
	for _, p := range list {
		if !r.reserve(len(p.Key) + len(p.RangeEnd) + 50) { // with the field names
			break
		}
		both := p.PermType == authpb.READWRITE // an unknown type allows nothing
		out = append(out, permission{p.Key, p.RangeEnd, both || p.PermType == authpb.READ, both ||
			p.PermType == authpb.WRITE})
	}
	return out
}

// maxRanges limits how many of its user's ranges a session lists.
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
	// Use the data of this member, so that a session lasts while there is no leader.
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
