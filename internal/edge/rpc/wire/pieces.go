package wire

import (
	"vigil/client/pbfield"
	"vigil/internal/kv"
)

// Piece is a part of an encoding: separate bytes, or a piece of a long list of records.
type Piece struct {
	Data *[]byte
	// Lender receives Data after it was sent; nil if Data is left to the garbage collector.
	Lender kv.Lender
}

// Long is a message that may hold long lists of records.
type Long interface {
	Encoder
	// Pieces appends the parts of the encoding to list, with the pieces of long lists as they are.
	// It returns nil if there is no long list: then use AppendTo.
	Pieces(list []Piece) []Piece
}

// Pieces implements Long.
func (m *RangeResponse) Pieces(list []Piece) []Piece {
	if m.Result.KVs.Long == nil {
		return nil
	}
	c := cutter{list: list}
	c.appendRange(m.Header, m.Result)
	return c.finish()
}

// Pieces implements Long.
func (m *RangeStreamResponse) Pieces(list []Piece) []Piece {
	if m.Result.KVs.Long == nil {
		return nil
	}
	c := cutter{list: list}
	c.b = pbfield.AppendLen(c.b, 1, m.innerSize())
	if m.Last {
		c.appendRange(m.Header, m.Result)
	} else {
		c.cutList(m.Result.KVs.Long)
	}
	return c.finish()
}

// Pieces implements Long.
func (m *TxnResponse) Pieces(list []Piece) []Piece {
	if !hasLongList(m.Result) {
		return nil
	}
	c := cutter{list: list}
	c.appendTxn(m.Header, m.Result)
	return c.finish()
}

func hasLongList(r *kv.TxnResult) bool {
	for i := range r.Responses {
		switch op := &r.Responses[i]; {
		case op.Range != nil && op.Range.KVs.Long != nil, op.Txn != nil && hasLongList(op.Txn):
			return true
		}
	}
	return false
}

// cutter appends an encoding with long lists cut out.
type cutter struct {
	list []Piece
	b    []byte // the next bytes
}

// cutList ends the bytes so far and appends the pieces of a list.
func (c *cutter) cutList(l *kv.LongRecords) {
	c.endBytes()
	for _, p := range l.Pieces {
		c.list = append(c.list, Piece{Data: p, Lender: l.Lender})
	}
}

// endBytes makes the bytes so far a piece.
func (c *cutter) endBytes() {
	if len(c.b) > 0 {
		b := c.b
		c.list, c.b = append(c.list, Piece{Data: &b}), nil
	}
}

// finish returns all pieces.
func (c *cutter) finish() []Piece {
	c.endBytes()
	return c.list
}

// The methods below append the same bytes as the functions of the same name.

func (c *cutter) appendRange(h kv.Header, r *kv.RangeResult) {
	if r.KVs.Long == nil {
		c.b = appendRange(c.b, h, r)
		return
	}
	c.b = appendHeader(c.b, h)
	c.cutList(r.KVs.Long)
	c.b = pbfield.AppendBool(c.b, 3, r.More)
	c.b = pbfield.AppendInt(c.b, 4, r.Count)
}

func (c *cutter) appendTxn(h kv.Header, r *kv.TxnResult) {
	c.b = appendHeader(c.b, h)
	c.b = pbfield.AppendBool(c.b, 2, r.Succeeded)
	for i := range r.Responses {
		op := &r.Responses[i]
		c.b = pbfield.AppendLen(c.b, 3, sizeOp(op))
		switch {
		case op.Range != nil:
			c.b = pbfield.AppendLen(c.b, 1, sizeUnion(op))
			c.appendRange(kv.Header{Revision: op.Range.Revision}, op.Range)
		case op.Txn != nil:
			c.b = pbfield.AppendLen(c.b, 4, sizeUnion(op))
			c.appendTxn(kv.Header{}, op.Txn)
		default:
			c.b = appendOp(c.b, op)
		}
	}
}
