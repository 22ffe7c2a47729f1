package cli

import (
	"testing"

	"vigil/client"
)

// TestGets: an answer with another number of parts than the transaction has operations, or with
// parts of another kind, is an error.
func TestGets(t *testing.T) {
	get := client.OpResponse{Get: &client.GetResponse{KVs: []client.KeyValue{{Key: "k"}}}}
	for name, list := range map[string][]client.OpResponse{"one of two": {get},
		"three of two": {get, get, get}, "another kind": {get, {}}} {
		if _, err := Gets(&client.TxnResponse{Responses: list}, 2); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	kvs, err := Gets(&client.TxnResponse{Responses: []client.OpResponse{get,
		{Get: &client.GetResponse{}}}}, 2)
	if err != nil || kvs[0].Key != "k" || kvs[1] != nil {
		t.Errorf("%v, %v", kvs, err)
	}
}
