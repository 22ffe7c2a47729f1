package fsm

import (
	"testing"

	"vigil/internal/kv"
	"vigil/internal/state/lineage"
)

// What a later level adds is marked with that level, also when the level is invented: all other kinds are known to every level.
func TestRequestsHaveALevel(t *testing.T) {
	claim, write := &Request{Claim: &lineage.Claim{}}, &Request{Put: &kv.PutRequest{}}
	laterKinds[KindClaim] = Level + 1
	defer delete(laterKinds, KindClaim)
	if got := claim.Level(); got != Level+1 {
		t.Errorf("an invented later kind has level %d, want %d", got, Level+1)
	}
	if got := write.Level(); got != 1 {
		t.Errorf("a put has level %d", got)
	}
	for k, level := range laterKinds {
		if level < 2 || k != KindClaim && level > Level {
			t.Errorf("kind %d has level %d; this program has level %d", k, level, Level)
		}
	}
}
