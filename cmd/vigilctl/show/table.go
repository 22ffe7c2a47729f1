package show

import (
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/tw"
)

// table prints a heading and rows in a frame, right-aligned, by the library that etcd's command line uses.
func (p *Printer) table(heading []string, rows [][]string) {
	if p.err != nil {
		return
	}
	t := tablewriter.NewTable(p.Out, tablewriter.WithConfig(tablewriter.NewConfigBuilder().WithRowAlignment(tw.AlignRight).Build()))
	t.Header(heading)
	if p.err = t.Bulk(rows); p.err == nil {
		p.err = t.Render()
	}
}
