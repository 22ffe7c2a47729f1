package show

import (
	"io"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
)

// WriteTable writes a heading and rows in a frame, right-aligned. It uses the same library as
// etcd's command line.
func WriteTable(w io.Writer, heading []string, rows [][]string) error {
	t := tablewriter.NewTable(w,
		tablewriter.WithConfig(tablewriter.NewConfigBuilder().WithRowAlignment(tw.AlignRight).Build()))
	t.Header(heading)
	if err := t.Bulk(rows); err != nil {
		return err
	}
	return t.Render()
}
