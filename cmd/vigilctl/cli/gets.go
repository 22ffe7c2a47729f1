package cli

import (
	"fmt"

	"vigil/client"
)

// Gets returns the keys that the n gets of a transaction found, nil for each missing key.
func Gets(r *client.TxnResponse, n int) ([]*client.KeyValue, error) {
	if len(r.Responses) != n {
		return nil, fmt.Errorf("the member has sent %d answers to a transaction of %d operations",
			len(r.Responses), n)
	}
	kvs := make([]*client.KeyValue, n)
	for i, x := range r.Responses {
		if x.Get == nil {
			return nil, fmt.Errorf("the member has sent something else than an answer to operation %d of a transaction, a get", i+1)
		}
		kvs[i] = x.Get.KV()
	}
	return kvs, nil
}
