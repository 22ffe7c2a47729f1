package kv

import (
	"context"
	"testing"
)

func TestCredentials(t *testing.T) {
	type key struct{}
	base := context.WithValue(t.Context(), key{}, "value")
	if c := CredentialsOf(base); c != nil {
		t.Errorf("a context without credentials has %v", c)
	}
	own := &Credentials{Token: "own"}
	outer := WithCredentials(base, own)
	if c := CredentialsOf(outer); c != own {
		t.Errorf("the credentials are %v", c)
	}
	inner, made := WithNewCredentials(outer)
	made.Token = "made"
	if c := CredentialsOf(context.WithoutCancel(inner)); c != made || own.Token != "own" {
		t.Errorf("the credentials are %v, and those before them %v", c, own)
	}
	if v := inner.Value(key{}); v != "value" {
		t.Errorf("another value became %v", v)
	}
}
