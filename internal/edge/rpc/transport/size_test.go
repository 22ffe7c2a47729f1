package transport

import (
	"testing"
	"unsafe"
)

// TestCallSize: a client may have very many calls that do nothing. The runtime takes 576 bytes for
// an object of more than 512.
func TestCallSize(t *testing.T) {
	if size := unsafe.Sizeof(call{}); size > 512 {
		t.Errorf("a call has %d bytes, more than 512: put what few calls have in special", size)
	}
}
