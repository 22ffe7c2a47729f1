package mirror

import (
	"encoding/json"

	"vigil/client"
)

// JSON decodes values that are JSON documents.
func JSON[T any](kv client.KeyValue) (v T, err error) {
	err = json.Unmarshal(kv.Value, &v)
	return v, err
}

// String returns values unchanged.
func String(kv client.KeyValue) (string, error) { return string(kv.Value), nil }

// Bytes returns copies of values. They must not be changed.
func Bytes(kv client.KeyValue) ([]byte, error) { return append([]byte{}, kv.Value...), nil }
