package probe

import (
	"context"
	"encoding/json"
	"net/http"

	"vigil/internal/debugpage"
)

// Archive reads /debug/archive. ErrNotFound: the member has no archive.
func (m *Member) Archive(ctx context.Context) (*debugpage.Archive, error) {
	a := new(debugpage.Archive)
	err := m.get(ctx, "/debug/archive",
		func(r *http.Response) error { return json.NewDecoder(r.Body).Decode(a) })
	if err != nil {
		return nil, err
	}
	return a, nil
}
