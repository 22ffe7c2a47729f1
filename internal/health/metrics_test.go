package health

import (
	"math"
	"strings"
	"testing"
)

const page = `# TYPE puts counter
puts 41
# TYPE alive gauge
alive{peer="a"} 1
alive{peer="b"} 2
# TYPE took histogram
took_bucket{op="x",le="0.001"} 10
took_bucket{op="x",le="0.002"} 90
took_bucket{op="x",le="+Inf"} 100
took_sum{op="x"} 1
took_count{op="x"} 100
took_bucket{op="y",le="0.001"} 0
took_bucket{op="y",le="0.002"} 0
took_bucket{op="y",le="+Inf"} 0
took_sum{op="y"} 0
took_count{op="y"} 0
`

func TestMetrics(t *testing.T) {
	m, err := ParseMetrics(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"puts": 41, "alive": 3} {
		if v, ok := m.Value(name); !ok || v != want {
			t.Errorf("%s: %v %v", name, v, ok)
		}
	}
	if _, ok := m.Value("none"); ok {
		t.Error("a metric that is not there has a value")
	}
	h := m.Histogram("took")
	for share, want := range map[float64]float64{0.05: 0.0005, 0.1: 0.001, 0.5: 0.0015,
		0.9: 0.002, 0.99: 0.002} {
		if v, ok := h.Quantile(share); !ok || math.Abs(v-want) > 1e-12 {
			t.Errorf("share %v: %v %v, want %v", share, v, ok, want)
		}
	}
	if _, ok := m.Histogram("none").Quantile(0.5); ok {
		t.Error("nothing has a quantile")
	}
	if _, err := ParseMetrics(strings.NewReader("{")); err == nil {
		t.Error("nonsense is read")
	}
}

func TestHistogramSince(t *testing.T) {
	old := Histogram{Bounds: []float64{1, 2}, UpTo: []uint64{5, 6}, Count: 7}
	now := Histogram{Bounds: []float64{1, 2}, UpTo: []uint64{5, 16}, Count: 17}
	d := now.Since(old)
	if d.Count != 10 || d.UpTo[0] != 0 || d.UpTo[1] != 10 {
		t.Errorf("%+v", d)
	}
	if v, _ := d.Quantile(0.5); v != 1.5 {
		t.Errorf("%v", v)
	}
	// A member that was started again counts from 0.
	if d := old.Since(now); d.Count != old.Count {
		t.Errorf("%+v", d)
	}
}
