package health

import (
	"io"
	"iter"
	"math"
	"slices"
	"sort"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metrics are the metrics of a member by name.
type Metrics map[string]*dto.MetricFamily

// ParseMetrics reads the text format of Prometheus.
func ParseMetrics(r io.Reader) (Metrics, error) {
	p := expfmt.NewTextParser(model.UTF8Validation)
	return p.TextToMetricFamilies(r)
}

// GatheredMetrics converts the metrics that a registry has gathered.
func GatheredMetrics(families []*dto.MetricFamily) Metrics {
	m := Metrics{}
	for _, f := range families {
		m[f.GetName()] = f
	}
	return m
}

// FormatMetrics writes the metrics with these names in the text format of Prometheus.
func FormatMetrics(families []*dto.MetricFamily, names map[string]bool) (string, error) {
	var text strings.Builder
	for _, f := range families {
		if !names[f.GetName()] {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return "", err
		}
	}
	return text.String(), nil
}

// Value returns the sum of a counter or gauge over all labels. The result is false if the metric is
// missing or not finite.
func (m Metrics) Value(name string) (float64, bool) {
	f := m[name]
	if f == nil {
		return 0, false
	}
	var sum float64
	for _, x := range f.Metric {
		sum += valueOf(x)
	}
	if !finite(sum) {
		return 0, false
	}
	return sum, true
}

// valueOf returns the value of a counter or gauge.
func valueOf(x *dto.Metric) float64 {
	return x.GetCounter().GetValue() + x.GetGauge().GetValue() + x.GetUntyped().GetValue()
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// Labels returns the finite values of a counter or gauge, each with its labels.
func (m Metrics) Labels(name string) iter.Seq2[float64, map[string]string] {
	return func(yield func(float64, map[string]string) bool) {
		for _, x := range m[name].GetMetric() {
			if !finite(valueOf(x)) {
				continue
			}
			labels := map[string]string{}
			for _, l := range x.Label {
				labels[l.GetName()] = l.GetValue()
			}
			if !yield(valueOf(x), labels) {
				return
			}
		}
	}
}

// Histogram returns a histogram, summed over all labels.
func (m Metrics) Histogram(name string) Histogram {
	at := map[float64]uint64{}
	var h Histogram
	for _, x := range m[name].GetMetric() {
		h.Count += x.GetHistogram().GetSampleCount()
		h.Sum += x.GetHistogram().GetSampleSum()
		for _, b := range x.GetHistogram().GetBucket() {
			if bound := b.GetUpperBound(); finite(bound) && bound >= 0 {
				at[b.GetUpperBound()] += b.GetCumulativeCount()
			}
		}
	}
	if !finite(h.Sum) {
		h.Sum = 0
	}
	for bound := range at {
		h.Bounds = append(h.Bounds, bound)
	}
	sort.Float64s(h.Bounds)
	for _, bound := range h.Bounds {
		h.UpTo = append(h.UpTo, at[bound])
	}
	return h
}

// Histogram counts observations in seconds. UpTo[i] of them were at most Bounds[i], and Count is
// the number of all.
type Histogram struct {
	Bounds []float64 `json:"bounds"`
	UpTo   []uint64  `json:"up_to"`
	Count  uint64    `json:"count"`
	Sum    float64   `json:"sum"` // of all, in seconds
}

// Mean returns the average of the observations. ok is false without observations.
func (h Histogram) Mean() (seconds float64, ok bool) {
	if h.Count == 0 {
		return 0, false
	}
	return max(h.Sum, 0) / float64(h.Count), true
}

// Since returns the observations since an older reading, or all of h if the member has restarted
// since.
func (h Histogram) Since(old Histogram) Histogram {
	if d, ok := h.minus(old); ok {
		return d
	}
	return h
}

// minus returns the observations that an older histogram lacks. ok is false if the older one has
// others.
func (h Histogram) minus(old Histogram) (d Histogram, ok bool) {
	if old.Count == 0 {
		return h, true
	}
	if !slices.Equal(old.Bounds, h.Bounds) || old.Count > h.Count {
		return d, false
	}
	d = Histogram{Bounds: h.Bounds, Count: h.Count - old.Count, Sum: h.Sum - old.Sum,
		UpTo: make([]uint64, len(h.UpTo))}
	for i := range h.UpTo {
		if old.UpTo[i] > h.UpTo[i] {
			return d, false
		}
		d.UpTo[i] = h.UpTo[i] - old.UpTo[i]
	}
	return d, d.valid()
}

// valid reports whether a histogram is consistent.
func (h Histogram) valid() bool {
	return len(h.UpTo) == len(h.Bounds) && slices.IsSorted(h.Bounds) && slices.IsSorted(h.UpTo) &&
		(len(h.UpTo) == 0 || h.Bounds[0] >= 0 && h.UpTo[len(h.UpTo)-1] <= h.Count)
}

// Quantile estimates the value below which a share of the observations lies. As Prometheus does, it
// assumes an even distribution within a bucket. Above the last bound the result is that bound. ok
// is false without observations.
func (h Histogram) Quantile(share float64) (seconds float64, ok bool) {
	if h.Count == 0 || len(h.Bounds) == 0 || len(h.UpTo) != len(h.Bounds) {
		return 0, false
	}
	rank := share * float64(h.Count)
	i := sort.Search(len(h.UpTo), func(i int) bool { return float64(h.UpTo[i]) >= rank })
	if i == len(h.UpTo) {
		return h.Bounds[i-1], true
	}
	low, before := 0.0, uint64(0)
	if i > 0 {
		low, before = h.Bounds[i-1], h.UpTo[i-1]
	}
	in := float64(h.UpTo[i] - before)
	if in == 0 {
		return h.Bounds[i], true
	}
	return low + (h.Bounds[i]-low)*((rank-float64(before))/in), true
}
