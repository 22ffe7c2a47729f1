package report

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"vigil/tools/bench/chart"
	"vigil/tools/bench/suite"
)

func round(a, b, c float64) [][]suite.Figure {
	f := func(v float64) []suite.Figure {
		return []suite.Figure{
			{Name: "server CPU per put", Unit: "µs", Value: v, Better: suite.Lower},
			{Name: "disk", Unit: "µs", Value: 0, Auxiliary: true},
		}
	}
	return [][]suite.Figure{f(a), f(b), f(c)}
}

func TestReport(t *testing.T) {
	s := &Scenario{Name: "put", About: "puts"}
	for _, r := range [][][]suite.Figure{round(10, 20, 11), round(30, 40, 30), round(12, 24, 12)} {
		if err := s.Add(r, 0); err != nil {
			t.Fatal(err)
		}
	}
	f := s.Figures[0]
	if f.Ratio.Median != 0.5 || f.Ratio.Max != 0.75 || f.Control.Median != 1 ||
		f.Control.Max != 1.1 || f.Of[1].Median != 24 {
		t.Fatalf("%+v", f)
	}
	r := &Report{Systems: []System{{Name: "one"}, {Name: "two"}, {Name: "one again"}},
		Scenarios: []*Scenario{s, {Name: "bad", Error: "why"}}}
	var text, enc bytes.Buffer
	if err := r.Table(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A = one", "server CPU per put", "12.0", "10.0 … 30.0", "0.50",
		"0.50 … 0.75", "1.00 … 1.10", "(disk)", "FAILED: why"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if err := r.JSON(&enc); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Scenarios []struct {
			Figures []struct{ Values [][]float64 }
		}
	}
	if err := json.Unmarshal(enc.Bytes(), &back); err != nil ||
		back.Scenarios[0].Figures[0].Values[1][1] != 40 {
		t.Fatalf("%v %s", err, enc.String())
	}
}

func TestFiguresMustAgree(t *testing.T) {
	s := &Scenario{Name: "put"}
	bad := round(1, 2, 3)
	bad[1] = bad[1][:1]
	if s.Add(bad, 0) == nil {
		t.Fatal("a system without a figure is taken")
	}
	s = &Scenario{Name: "put"}
	bad = round(1, 2, 3)
	bad[2][0].Name = "other"
	if s.Add(bad, 0) == nil {
		t.Fatal("a figure under another name is taken")
	}
}

func TestChart(t *testing.T) {
	s := &Scenario{Name: "cost", About: "cost of keys", Axis: "keys"}
	for _, up := range []float64{0, 2} {
		var all [][]suite.Figure
		for _, v := range []float64{10, 50, 51} { // the last one is the control
			all = append(all, []suite.Figure{
				{Name: "put at 10", Unit: "µs", Value: v + up, Line: "put", X: 10},
				{Name: "put at 100", Unit: "µs", Value: 2*v + up, Line: "put", X: 100},
				{Name: "in no line", Value: 7},
			})
		}
		if err := s.Add(all, 1); err != nil {
			t.Fatal(err)
		}
	}
	c := s.Chart([]System{{Name: "one"}, {Name: "two"}, {Name: "two again"}})
	if len(c.Lines) != 2 || c.Lines[1].Name != "two, put" || len(c.Lines[1].Points) != 2 ||
		c.Lines[1].Points[1] != (chart.Point{X: 100, Y: 101, Low: 100, High: 102}) {
		t.Fatalf("%+v", c)
	}
	if (&Scenario{Figures: s.Figures}).Chart([]System{{Name: "one"}}) != nil {
		t.Fatal("a scenario without an axis has a chart")
	}
}
