package diff

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// as returns a call with the token of its user on this side.
func (s *Side) as(c Call) Call {
	if c.User != "" {
		c.Metadata = append(slices.Clone(c.Metadata), "token", s.tokens[c.User])
	}
	return c
}

// Login authenticates a user on both sides, compares the answers, and keeps the tokens for calls of
// the user. It reports whether both sides gave one.
func (p *Pair) Login(user, password string) bool {
	p.t.Helper()
	req := NewCall(&pb.AuthenticateRequest{Name: user, Password: password})
	ok := true
	var answers [2]Outcome
	for i, s := range []*Side{p.Etcd, p.Subject} {
		answers[i] = invoke(p.t.Context(), s.Conn, req)
		if r, is := answers[i].Resp.(*pb.AuthenticateResponse); is {
			if s.tokens == nil {
				s.tokens = map[string]string{}
			}
			s.tokens[user] = r.Token
		} else {
			ok = false
		}
	}
	p.Calls++
	p.note(req.String(), compare(answers[0], p.Etcd.ids, answers[1], p.Subject.ids))
	return ok
}

// DoAs is Do with the token of a user, without a token if the name is empty.
func (p *Pair) DoAs(user string, req proto.Message) Outcome {
	c := NewCall(req)
	c.User = user
	return p.Call(c)
}
