package api

import (
	"encoding/binary"
	"fmt"

	"vigil/client/pbfield"
)

// RangeCounter walks a RangeResponse that arrives in parts, without keeping it: it counts the keys
// and their bytes and reads the count. The zero value is ready for one answer.
type RangeCounter struct {
	Keys  int64
	Bytes int64 // of the encoded keys with their records
	Count int64

	skip int64  // bytes of the current field that are still to come
	head []byte // the beginning of a tag, length or varint that is not whole yet
}

// Add takes the next part.
func (c *RangeCounter) Add(p []byte) error {
	for len(p) > 0 {
		if c.skip > 0 {
			n := min(c.skip, int64(len(p)))
			c.skip -= n
			p = p[n:]
			continue
		}
		c.head = append(c.head, p[0])
		p = p[1:]
		if err := c.completeField(); err != nil {
			return err
		}
	}
	return nil
}

// completeField looks whether head is a whole tag with its varint or length.
func (c *RangeCounter) completeField() error {
	tag, n := binary.Uvarint(c.head)
	if n == 0 {
		return nil
	}
	v, k := binary.Uvarint(c.head[max(n, 0):])
	switch {
	case n < 0 || k < 0:
		return fmt.Errorf("%w: varint", pbfield.ErrInvalid)
	case k == 0:
		return nil
	}
	c.head = c.head[:0]
	switch tag & 7 {
	case 0:
		if tag>>3 == 4 {
			c.Count = int64(v)
		}
	case 2:
		if tag>>3 == 2 {
			c.Keys++
			c.Bytes += int64(v)
		}
		c.skip = int64(v)
	default:
		return fmt.Errorf("%w: wire type %d", pbfield.ErrInvalid, tag&7)
	}
	return nil
}

// Whole reports an answer that ends inside a field.
func (c *RangeCounter) Whole() error {
	if c.skip > 0 || len(c.head) > 0 {
		return fmt.Errorf("%w: cut short", pbfield.ErrInvalid)
	}
	return nil
}
