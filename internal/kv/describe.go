package kv

import "strconv"

// The limits of descriptions: a longer text, and a longer key in it, ends in dots.
const (
	maxDescription  = 1 << 10
	maxDescribedKey = 128
)

// Describe returns the request as text for the log: keys and numbers, but only the sizes of values.
func (r *RangeRequest) Describe() string { return described(r.describe) }

// Describe is like RangeRequest's.
func (r *PutRequest) Describe() string { return described(r.describe) }

// Describe is like RangeRequest's.
func (r *DeleteRangeRequest) Describe() string { return described(r.describe) }

// Describe is like RangeRequest's.
func (r *TxnRequest) Describe() string { return described(r.describe) }

// Describe is like RangeRequest's.
func (r *CompactRequest) Describe() string { return described(r.describe) }

func described(f func([]byte) []byte) string {
	b := f(nil)
	if len(b) > maxDescription {
		b = append(b[:maxDescription], "..."...)
	}
	return string(b)
}

func (r *RangeRequest) describe(b []byte) []byte {
	b = appendRange(b, r.Key, r.End)
	for _, n := range []struct {
		name  string
		value int64
	}{{"limit", r.Limit}, {"revision", r.Revision}, {"sort_order", int64(r.Order)},
		{"sort_target", int64(r.Sort)},
		{"min_mod_revision", r.MinModRevision}, {"max_mod_revision", r.MaxModRevision},
		{"min_create_revision", r.MinCreateRevision},
		{"max_create_revision", r.MaxCreateRevision}} {
		b = appendNumber(b, n.name, n.value)
	}
	b = appendFlag(b, "serializable", r.Serializable)
	b = appendFlag(b, "keys_only", r.KeysOnly)
	return appendFlag(b, "count_only", r.CountOnly)
}

func (r *PutRequest) describe(b []byte) []byte {
	b = appendKey(b, "key", r.Key)
	b = strconv.AppendInt(append(b, " value_size:"...), int64(len(r.Value)), 10)
	b = appendNumber(b, "lease", r.Lease)
	b = appendFlag(b, "prev_kv", r.PrevKV)
	b = appendFlag(b, "ignore_value", r.IgnoreValue)
	return appendFlag(b, "ignore_lease", r.IgnoreLease)
}

func (r *DeleteRangeRequest) describe(b []byte) []byte {
	return appendFlag(appendRange(b, r.Key, r.End), "prev_kv", r.PrevKV)
}

func (r *TxnRequest) describe(b []byte) []byte {
	for i := range r.Compare {
		if len(b) > maxDescription {
			return b
		}
		c := &r.Compare[i]
		b = append(b, "compare:<target:"...)
		b = strconv.AppendInt(b, int64(c.Target), 10)
		b = append(b, " result:"...)
		b = strconv.AppendInt(b, int64(c.Result), 10)
		b = appendRange(append(b, ' '), c.Key, c.End)
		if c.Target == CompareValue {
			b = strconv.AppendInt(append(b, " value_size:"...), int64(len(c.Value)), 10)
		} else {
			b = strconv.AppendInt(append(b, " number:"...), c.Number, 10)
		}
		b = append(b, "> "...)
	}
	b = describeOps(append(b, "success:<"...), r.Success)
	return append(describeOps(append(b, "> failure:<"...), r.Failure), '>')
}

func describeOps(b []byte, ops []Op) []byte {
	for i := range ops {
		if len(b) > maxDescription {
			return b
		}
		if i > 0 {
			b = append(b, ' ')
		}
		switch op := &ops[i]; {
		case op.Range != nil:
			b = append(op.Range.describe(append(b, "request_range:<"...)), '>')
		case op.Put != nil:
			b = append(op.Put.describe(append(b, "request_put:<"...)), '>')
		case op.Delete != nil:
			b = append(op.Delete.describe(append(b, "request_delete_range:<"...)), '>')
		case op.Txn != nil:
			b = append(op.Txn.describe(append(b, "request_txn:<"...)), '>')
		}
	}
	return b
}

func (r *CompactRequest) describe(b []byte) []byte {
	b = strconv.AppendInt(append(b, "revision:"...), r.Revision, 10)
	return appendFlag(b, "physical", r.Physical)
}

func appendRange(b, key, end []byte) []byte {
	if b = appendKey(b, "key", key); len(end) > 0 {
		b = appendKey(append(b, ' '), "range_end", end)
	}
	return b
}

func appendKey(b []byte, name string, key []byte) []byte {
	b = append(append(b, name...), ':')
	if len(key) > maxDescribedKey {
		return append(strconv.AppendQuote(b, string(key[:maxDescribedKey])), "..."...)
	}
	return strconv.AppendQuote(b, string(key))
}

// appendNumber omits 0, appendFlag false.
func appendNumber(b []byte, name string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(append(append(b, ' '), name...), ':'), n, 10)
}

func appendFlag(b []byte, name string, set bool) []byte {
	if !set {
		return b
	}
	return append(append(append(b, ' '), name...), ":true"...)
}
