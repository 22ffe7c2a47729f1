package h2

import "testing"

// TestTable: the table knows which numbers were used, skipped, ignored and ended.
func TestTable(t *testing.T) {
	d := newTable()
	enter := func(id uint32) *Stream {
		s := &Stream{id: id}
		d.acceptNumber(id)
		if d.isEmpty() {
			t.Errorf("stream %d is accepted, and the table is empty", id)
		}
		d.enterStream(s)
		return s
	}
	enter(1)
	enter(7) // 3 and 5 are skipped
	for id, idle := range map[uint32]bool{1: false, 3: false, 7: false, 9: true, 2: true} {
		if d.isIdle(id) != idle {
			t.Errorf("stream %d is idle: %v", id, !idle)
		}
	}
	for id, skipped := range map[uint32]bool{1: false, 3: true, 5: true, 7: false, 9: false} {
		if d.skipped.has(id) != skipped {
			t.Errorf("stream %d is skipped: %v", id, !skipped)
		}
	}
	d.removeStream(1, true)
	d.removeStream(7, false)
	d.ignoreNumber(9, true)
	if !d.isEmpty() || d.accepted != 7 || d.last != 9 {
		t.Errorf("accepted %d, last %d, empty %v", d.accepted, d.last, d.isEmpty())
	}
	for id, byClient := range map[uint32]bool{1: true, 7: false, 9: true} {
		if ended, ok := d.recent.find(id); !ok || ended != byClient {
			t.Errorf("stream %d is known: %v, ended by the client: %v", id, ok, ended)
		}
	}
	d.recent.noteEnd(7)
	d.recent.addReset(11)
	d.recent.addReset(1)
	for _, id := range []uint32{1, 7} {
		if ended, _ := d.recent.find(id); !ended {
			t.Errorf("the client has ended stream %d", id)
		}
	}
	for id := uint32(11); id < 11+2*uint32(len(d.recent.list)); id += 2 {
		d.recent.add(id, false)
	}
	if _, ok := d.recent.find(1); ok {
		t.Error("a stream that was closed long ago is known")
	}
}

// TestStreamMap: the map of a connection that had very many streams is made again when it is empty.
func TestStreamMap(t *testing.T) {
	d := newTable()
	for id := uint32(1); id < 2*(maxStreamMap+10); id += 2 {
		d.acceptNumber(id)
		d.enterStream(&Stream{id: id})
	}
	if d.peak != maxStreamMap+10 {
		t.Errorf("the peak is %d", d.peak)
	}
	for id := uint32(1); id < 2*(maxStreamMap+10); id += 2 {
		d.removeStream(id, true)
	}
	if d.peak != 0 || !d.isEmpty() {
		t.Errorf("the peak is %d, and the table is empty: %v", d.peak, d.isEmpty())
	}
	d.acceptNumber(9001)
	d.enterStream(&Stream{id: 9001})
	if taken := d.takeStreams(); len(taken) != 1 || !d.isEmpty() {
		t.Errorf("%d streams were taken, and the table is empty: %v", len(taken), d.isEmpty())
	}
}
