package session

import (
	"fmt"
	"slices"
	"strings"
)

// Key returns the same text for watchers that can share a stream: they use the same member ("" for
// any) and the same metadata.
func Key(member string, md map[string][]string) string {
	var b strings.Builder
	if member != "" {
		fmt.Fprintf(&b, "%q", member)
	}
	names := make([]string, 0, len(md))
	for name := range md {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&b, " %q=%q", name, md[name])
	}
	return b.String()
}
