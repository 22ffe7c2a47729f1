// Package chart draws lines over a logarithmic axis as SVG.
package chart

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Point is a value at a place on the x axis; Low and High are the ends of its spread.
type Point struct{ X, Y, Low, High float64 }

// Line is a named line; its points are in the order of X.
type Line struct {
	Name   string
	Points []Point
	Dashed bool
}

// Chart describes a chart. Both axes are logarithmic.
type Chart struct {
	Title, XAxis, YAxis string
	Lines               []Line
}

// The size in pixels, and the margins around the plot.
const (
	width, height            = 720, 420
	left, right, top, bottom = 70, 170, 40, 60
)

var colors = []string{"#0b62a4", "#c2410c", "#15803d", "#7e22ce", "#334155", "#be185d"}

// axis maps values to pixels.
type axis struct {
	low, high float64 // logarithms
	from, to  float64 // pixels
}

func newAxis(low, high, from, to float64) axis {
	return axis{math.Log10(low), math.Log10(high), from, to}
}

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-a.low)/(a.high-a.low)*(a.to-a.from)
}

// ticks are the powers of 10 within the axis, and their multiples by 2 and 5 if the powers are few.
func (a axis) ticks() (list []float64) {
	steps := []float64{1}
	if a.high-a.low < 3 {
		steps = []float64{1, 2, 5}
	}
	for e := math.Floor(a.low); e <= a.high; e++ {
		for _, s := range steps {
			if v := s * math.Pow(10, e); math.Log10(v) >= a.low-1e-9 &&
				math.Log10(v) <= a.high+1e-9 {
				list = append(list, v)
			}
		}
	}
	return list
}

// SVG writes the chart. A chart without two different places on the x axis, or with a value that is
// not above 0, is an error.
func (c *Chart) SVG(w io.Writer) error {
	x, y, err := c.axes()
	if err != nil {
		return err
	}
	var b strings.Builder
	text := func(px, py float64, anchor, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", px, py, anchor,
			html.EscapeString(s))
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#222">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text(left, 22, "start", c.Title)
	for _, v := range x.ticks() {
		fmt.Fprintf(&b, `<path d="M%.1f %d V%d" stroke="#ddd"/>`+"\n", x.at(v), top, height-bottom)
		text(x.at(v), height-bottom+18, "middle", short(v))
	}
	for _, v := range y.ticks() {
		fmt.Fprintf(&b, `<path d="M%d %.1f H%d" stroke="#ddd"/>`+"\n", left, y.at(v), width-right)
		text(left-8, y.at(v)+4, "end", short(v))
	}
	text((left+width-right)/2, height-18, "middle", c.XAxis)
	fmt.Fprintf(&b, `<text transform="translate(18 %d) rotate(-90)" text-anchor="middle">%s</text>`+
		"\n", (top+height-bottom)/2, html.EscapeString(c.YAxis))
	for i, l := range c.Lines {
		color, dash := colors[i%len(colors)], ""
		if l.Dashed {
			dash = ` stroke-dasharray="6 4"`
		}
		var d strings.Builder
		for j, p := range l.Points {
			d.WriteString(map[bool]string{true: "M", false: " L"}[j == 0])
			fmt.Fprintf(&d, "%.1f %.1f", x.at(p.X), y.at(p.Y))
			fmt.Fprintf(&b, `<path d="M%.1f %.1f V%.1f" stroke="%s" stroke-opacity="0.5"/>`+"\n",
				x.at(p.X), y.at(p.Low), y.at(p.High), color)
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.at(p.X),
				y.at(p.Y), color)
		}
		fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n",
			d.String(), color, dash)
		key := float64(top + 14 + 20*i)
		fmt.Fprintf(&b, `<path d="M%d %.1f h24" stroke="%s" stroke-width="2"%s/>`+"\n",
			width-right+14, key-4, color, dash)
		text(width-right+44, key, "start", l.Name)
	}
	b.WriteString("</svg>\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// axes returns axes that hold all points and their spreads.
func (c *Chart) axes() (x, y axis, err error) {
	lowX, highX, lowY, highY := math.Inf(1), 0.0, math.Inf(1), 0.0
	for _, l := range c.Lines {
		for _, p := range l.Points {
			for _, v := range []float64{p.X, p.Y, p.Low, p.High} {
				if !(v > 0) || math.IsInf(v, 1) {
					return x, y, fmt.Errorf("line %q has the point %+v, which a logarithmic axis cannot show", l.Name, p)
				}
			}
			lowX, highX = min(lowX, p.X), max(highX, p.X)
			lowY, highY = min(lowY, p.Y, p.Low), max(highY, p.Y, p.High)
		}
	}
	if lowX >= highX {
		return x, y, fmt.Errorf("%q has fewer than two places on its x axis", c.Title)
	}
	return newAxis(lowX, highX, left, width-right),
		newAxis(lowY/1.5, highY*1.5, height-bottom, top), nil
}

// short is a number as people write it at an axis.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	default:
		return fmt.Sprintf("%g", v)
	}
}
