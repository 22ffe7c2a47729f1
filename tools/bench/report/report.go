// Package report gathers the figures of all runs and shows them: as a table for people and as JSON
// that keeps every single number.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"vigil/tools/bench/chart"
	"vigil/tools/bench/stats"
	"vigil/tools/bench/suite"
)

// Report is the outcome of one comparison.
type Report struct {
	Began    time.Time `json:"began"`
	Took     float64   `json:"took_seconds"`
	Machine  Machine   `json:"machine"`
	Settings any       `json:"settings"`
	// Systems are the two that are compared, and the control if there is one.
	Systems   []System    `json:"systems"`
	Scenarios []*Scenario `json:"scenarios"`
}

// Machine is where it ran.
type Machine struct {
	CPU        string `json:"cpu"`
	Processors int    `json:"processors"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
	Go         string `json:"go"`
	// Load is the load average of the machine over the minute before the first run: the work of
	// others.
	Load string `json:"load_before"`
}

// System is one of those compared.
type System struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Args    []string `json:"args,omitempty"`
}

// Scenario has the figures of one scenario.
type Scenario struct {
	Name    string    `json:"name"`
	About   string    `json:"about"`
	Axis    string    `json:"axis,omitempty"`
	Error   string    `json:"error,omitempty"`
	Figures []*Figure `json:"figures,omitempty"`
	rounds  int
}

// Figure has the values of one figure, by system and round.
type Figure struct {
	Name      string          `json:"name"`
	Unit      string          `json:"unit"`
	Better    string          `json:"better,omitempty"`
	Auxiliary bool            `json:"beside,omitempty"`
	Line      string          `json:"line,omitempty"`
	X         float64         `json:"x,omitempty"`
	Values    [][]float64     `json:"values"`
	Of        []stats.Summary `json:"systems"`
	// Ratio is the first system over the second, round by round; Control is the control over the
	// system that it repeats.
	Ratio   stats.Summary  `json:"ratio"`
	Control *stats.Summary `json:"control,omitempty"`
}

// Add takes the figures of one whole round: one list for each system, in the order of Systems. The
// control, if there is one, is the third and repeats system number controls.
func (s *Scenario) Add(round [][]suite.Figure, controls int) error {
	for i, fs := range round {
		if len(fs) != len(round[0]) {
			return fmt.Errorf("%s: %d figures of one system, %d of another", s.Name,
				len(fs), len(round[0]))
		}
		for j, f := range fs {
			if s.rounds == 0 && i == 0 {
				s.Figures = append(s.Figures,
					&Figure{Name: f.Name, Unit: f.Unit, Auxiliary: f.Auxiliary, Line: f.Line,
						X: f.X, Values: make([][]float64, len(round)),
						Better: map[suite.Better]string{suite.Lower: "lower",
							suite.Higher: "higher"}[f.Better]})
			}
			if s.Figures[j].Name != f.Name {
				return fmt.Errorf("%s: figure %d is %q once and %q then", s.Name, j,
					s.Figures[j].Name, f.Name)
			}
			s.Figures[j].Values[i] = append(s.Figures[j].Values[i], f.Value)
		}
	}
	s.rounds++
	for _, f := range s.Figures {
		f.Of = f.Of[:0]
		for _, v := range f.Values {
			f.Of = append(f.Of, stats.Of(v))
		}
		if len(f.Values) > 1 {
			f.Ratio = stats.Of(stats.Ratios(f.Values[0], f.Values[1]))
		}
		if len(f.Values) > 2 {
			c := stats.Of(stats.Ratios(f.Values[2], f.Values[controls]))
			f.Control = &c
		}
	}
	return nil
}

// Chart returns the figures that have a place on the scenario's axis as lines, one for each system
// but the control, or nil if there are none.
func (s *Scenario) Chart(systems []System) *chart.Chart {
	if s.Axis == "" || len(s.Figures) == 0 {
		return nil
	}
	c := &chart.Chart{Title: s.About, XAxis: s.Axis}
	for i := range min(len(systems), 2) {
		at := make(map[string]int)
		for _, f := range s.Figures {
			if f.Line == "" {
				continue
			}
			c.YAxis = "server CPU, " + f.Unit
			n, ok := at[f.Line]
			if !ok {
				n = len(c.Lines)
				at[f.Line] = n
				c.Lines = append(c.Lines,
					chart.Line{Name: systems[i].Name + ", " + f.Line, Dashed: i > 0})
			}
			of := f.Of[i]
			c.Lines[n].Points = append(c.Lines[n].Points,
				chart.Point{X: f.X, Y: of.Median, Low: of.Min, High: of.Max})
		}
	}
	return c
}

// JSON writes the report with every value of every round.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", " ")
	return enc.Encode(r)
}

// Table writes the report for people.
func (r *Report) Table(w io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, %d processors, Linux %s, %s, %s; load %s before; %s, took %s\n", m.CPU,
		m.Processors, m.Kernel, m.FileSystem, m.Go, m.Load,
		r.Began.UTC().Format("2006-01-02 15:04 MST"),
		(time.Duration(r.Took) * time.Second).String())
	for i, s := range r.Systems {
		fmt.Fprintf(&b, "%c = %s (%s)\n", 'A'+i, s.Name, s.Version)
	}
	for _, s := range r.Scenarios {
		fmt.Fprintf(&b, "\n%s: %s; %d rounds\n", s.Name, s.About, s.rounds)
		if s.Error != "" {
			fmt.Fprintf(&b, "  FAILED: %s\n", s.Error)
		}
		if len(s.Figures) > 0 {
			table(&b, s.Figures)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func table(b *strings.Builder, figures []*Figure) {
	head := []string{"figure", "unit"}
	n := len(figures[0].Of)
	for i := range min(n, 2) {
		head = append(head, fmt.Sprintf("%c median", 'A'+i), "min … max")
	}
	if n > 1 {
		head = append(head, "A/B", "min … max")
	}
	if n > 2 {
		head = append(head, "control", "min … max")
	}
	rows := [][]string{head}
	for _, f := range figures {
		name := f.Name
		if f.Auxiliary {
			name = "(" + name + ")"
		}
		row := []string{name, f.Unit}
		for i := range min(n, 2) {
			row = append(row, number(f.Of[i].Median), number(f.Of[i].Min)+" … "+number(f.Of[i].Max))
		}
		if n > 1 {
			row = append(row, ratio(f.Ratio)...)
		}
		if n > 2 {
			row = append(row, ratio(*f.Control)...)
		}
		rows = append(rows, row)
	}
	width := make([]int, len(head))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	for _, row := range rows {
		b.WriteString("  ")
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-len([]rune(cell)))
			switch {
			case i < 2:
				b.WriteString(cell + pad)
			default:
				b.WriteString(pad + cell)
			}
			if i < len(row)-1 {
				b.WriteString("  ")
			}
		}
		b.WriteString("\n")
	}
}

func ratio(s stats.Summary) []string {
	if s.N == 0 {
		return []string{"-", ""}
	}
	return []string{fmt.Sprintf("%.2f", s.Median), fmt.Sprintf("%.2f … %.2f", s.Min, s.Max)}
}

// number shows three significant digits, and all digits before the point.
func number(v float64) string {
	a := math.Abs(v)
	switch {
	case v == 0:
		return "0"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 0.01:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}
