package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

func sample() *Chart {
	return &Chart{Title: "cost <of> keys", XAxis: "keys", YAxis: "µs", Lines: []Line{
		{Name: "put & get", Points: []Point{{1e4, 10, 9, 12}, {1e5, 20, 20, 20},
			{1e6, 40, 30, 50}}},
		{Name: "other", Dashed: true, Points: []Point{{1e4, 50, 50, 50}, {1e6, 80, 80, 80}}},
	}}
}

func TestSVG(t *testing.T) {
	var b bytes.Buffer
	if err := sample().SVG(&b); err != nil {
		t.Fatal(err)
	}
	circles, texts := 0, ""
	for d := xml.NewDecoder(&b); ; {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			if tok.Name.Local == "circle" {
				circles++
			}
		case xml.CharData:
			texts += string(tok)
		}
	}
	if circles != 5 {
		t.Errorf("%d points drawn, want 5", circles)
	}
	for _, want := range []string{"cost <of> keys", "put & get", "other", "10k", "1M", "µs"} {
		if !strings.Contains(texts, want) {
			t.Errorf("no %q in %q", want, texts)
		}
	}
}

func TestPlaces(t *testing.T) {
	x, y, err := sample().axes()
	if err != nil {
		t.Fatal(err)
	}
	if got := x.at(1e5); math.Abs(got-(left+width-right)/2) > 1e-6 {
		t.Errorf("the middle of the x axis is at %v", got)
	}
	if y.at(80) >= y.at(10) || y.at(80) < top || y.at(9) > height-bottom {
		t.Errorf("80 is drawn at %v, 10 at %v", y.at(80), y.at(10))
	}
}

func TestWhatCannotBeDrawn(t *testing.T) {
	zero, one := sample(), sample()
	zero.Lines[0].Points[1].Y = 0
	one.Lines = []Line{{Name: "one", Points: []Point{{1, 1, 1, 1}}}}
	for _, c := range []*Chart{zero, one, {}} {
		if err := c.SVG(io.Discard); err == nil {
			t.Errorf("%+v is drawn", c)
		}
	}
}
