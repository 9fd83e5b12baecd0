package timeline

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Tick is a place on the axis that has a label.
type Tick struct {
	At    float64
	Label string
}

// times are the steps of an axis of seconds, beside those of numbers.
var times = []float64{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600, 6 * 3600, 12 * 3600,
	86400, 2 * 86400, 7 * 86400, 30 * 86400, 90 * 86400, 365 * 86400}

// Ticks returns at most about n places with labels.
func (t *Timeline) Ticks(n int) []Tick {
	step := nice((t.To - t.From) / float64(n))
	if t.Times && step >= 1 {
		for _, s := range times {
			if step = s; s >= (t.To-t.From)/float64(n) {
				break
			}
		}
	}
	var ticks []Tick
	for i := math.Ceil(t.From/step - 1e-9); i*step <= t.To+step*1e-9 && len(ticks) < 50; i++ {
		at := i * step
		ticks = append(ticks, Tick{at, t.label(at, step)})
	}
	return ticks
}

// nice is the smallest of 1, 2 and 5 times a power of ten that is at least x.
func nice(x float64) float64 {
	if x <= 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(x)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= x*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

func (t *Timeline) label(at, step float64) string {
	if !t.Times {
		digits := 0
		if step < 1 {
			digits = int(math.Ceil(-math.Log10(step)))
		}
		text := strconv.FormatFloat(at, 'f', digits, 64)
		if strings.Trim(text, "-0.") == "" {
			text = strings.TrimPrefix(text, "-") // nobody reads -0 as a clock
		}
		return text
	}
	when := time.UnixMilli(int64(math.Round(at * 1000))).UTC()
	switch {
	case step < 1:
		return when.Format("05.000")
	case step < 60:
		return when.Format("15:04:05")
	case step < 86400:
		return when.Format("15:04")
	}
	return when.Format("2006-01-02")
}

// Unit says what the axis shows.
func (t *Timeline) Unit() string {
	if !t.Times {
		return "the job's clock"
	}
	if t.To >= 253402300800 || t.From < 0 {
		return "Unix seconds"
	}
	from, to := time.Unix(int64(t.From), 0).UTC(), time.Unix(int64(t.To), 0).UTC()
	if day := from.Format("2006-01-02"); day == to.Format("2006-01-02") {
		if t.To-t.From < 8 {
			return "seconds of " + from.Format("2006-01-02 15:04") + " UTC"
		}
		return "UTC, " + day
	}
	return "UTC, " + from.Format("2006-01-02 15:04") + " to " + to.Format("2006-01-02 15:04")
}

// part is where on the axis x is, from 0 to 1.
func (t *Timeline) part(x float64) float64 {
	return min(max((x-t.From)/(t.To-t.From), 0), 1)
}
