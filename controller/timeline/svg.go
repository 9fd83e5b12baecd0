package timeline

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

//go:embed timeline.css
var css string

//go:embed timeline.svg.tmpl
var svgText string

// CSS styles the drawing where it stands in a page.
func CSS() string { return css }

var svgTemplate = template.Must(template.New("timeline").Funcs(template.FuncMap{
	"plus": func(a, b int) int { return a + b },
}).Parse(svgText))

// Measures of the drawing, in pixels. Places on the axis are in percent, so that it fits any width
// without its text changing size.
const (
	axisHeight = 34
	laneHeight = 58
	barTop     = 22
	barHeight  = 24
	fileWidth  = 960
	margin     = 2.0 // percent, on either side
	tipLine    = 38  // characters
)

type drawing struct {
	*Timeline
	File   bool // stands alone
	CSS    template.CSS
	Width  string
	Height int
	Bottom int
	Unit   string
	Ticks  []drawnTick
	Rules  []drawnMark
	Lanes  []drawnLane
	Empty  bool
}

type drawnTick struct{ X, Label, Anchor string }

type drawnLane struct {
	*Lane
	Top, Bar, Middle int
	Label            string
	Bars             []drawnBar
	Stale            []drawnSpan
	Marks            []drawnMark
}

type drawnSpan struct{ X, W, EndX string }

type drawnBar struct {
	*Bar
	drawnSpan
	Middle      string
	Long, Short string // labels, where there is room
}

type drawnMark struct {
	Mark
	X      string
	Middle int
	Tip    []tipText
	TipX   int
	TipY   int
	TipW   int
	TipH   int
}

type tipText struct {
	X, Y int
	Text string
}

// SVG draws the timeline for a page, whose style sheet has CSS.
func (t *Timeline) SVG(w io.Writer) error { return svgTemplate.Execute(w, t.draw(false)) }

// File draws the timeline as a file of its own.
func (t *Timeline) File(w io.Writer) error { return svgTemplate.Execute(w, t.draw(true)) }

func (t *Timeline) draw(file bool) drawing {
	d := drawing{Timeline: t, File: file, Width: "100%", Unit: t.Unit(), Empty: true}
	if file {
		d.Width, d.CSS = strconv.Itoa(fileWidth), template.CSS(css)
	}
	d.Bottom = axisHeight + laneHeight*len(t.Lanes)
	d.Height = d.Bottom + 10
	for _, k := range t.Ticks(6) {
		anchor := "middle"
		if p := t.part(k.At); p < .04 {
			anchor = "start"
		} else if p > .96 {
			anchor = "end"
		}
		d.Ticks = append(d.Ticks, drawnTick{t.x(k.At), k.Label, anchor})
	}
	for _, m := range t.Rules {
		d.Rules = append(d.Rules, t.drawMark(m, axisHeight-6, d.Height))
	}
	for i, l := range t.Lanes {
		d.Lanes = append(d.Lanes, t.drawLane(l, axisHeight+i*laneHeight, d.Height))
		d.Empty = d.Empty && len(l.Bars) == 0 && len(l.Marks) == 0
	}
	return d
}

func (t *Timeline) drawLane(l *Lane, top, height int) drawnLane {
	d := drawnLane{Lane: l, Top: top, Bar: top + barTop, Middle: top + barTop + barHeight/2, Label: shorten(l.Worker, 48)}
	for _, b := range l.Bars {
		s := t.span(b.Span)
		wide := 100 * (t.part(b.To) - t.part(b.From))
		drawn := drawnBar{Bar: b, drawnSpan: s, Middle: t.x((b.From + b.To) / 2)}
		label := strconv.FormatInt(b.Fence, 10)
		if b.More > 0 {
			label += fmt.Sprintf(" +%d", b.More)
		}
		if wide > 3+1.6*float64(len(label)) {
			drawn.Short = label
		}
		if wide > 9+1.2*float64(len(label)) {
			drawn.Long = "fence " + label
		}
		d.Bars = append(d.Bars, drawn)
	}
	for _, s := range l.Stale {
		d.Stale = append(d.Stale, t.span(s))
	}
	// The refused ones come last, on top of the others.
	for _, refused := range []bool{false, true} {
		for _, m := range l.Marks {
			if (m.Kind == Refused) == refused {
				d.Marks = append(d.Marks, t.drawMark(m, d.Middle, height))
			}
		}
	}
	return d
}

// drawMark places a mark and what is shown when it is pointed at, within the drawing.
func (t *Timeline) drawMark(m Mark, middle, height int) drawnMark {
	d := drawnMark{Mark: m, X: t.x(m.At), Middle: middle}
	lines := wrap(m.Text, tipLine)
	longest := 0
	for _, l := range lines {
		longest = max(longest, utf8.RuneCountInString(l))
	}
	d.TipW, d.TipH = longest*7+20, len(lines)*17+13
	// As far along the tip as the mark is along the axis: it fits wherever it is as wide as the drawing.
	d.TipX = -int(t.part(m.At) * float64(d.TipW))
	d.TipY = 16
	if middle+d.TipY+d.TipH > height && middle-16-d.TipH >= 0 {
		d.TipY = -16 - d.TipH
	}
	for i, l := range lines {
		d.Tip = append(d.Tip, tipText{d.TipX + 10, d.TipY + 19 + 17*i, l})
	}
	return d
}

func (t *Timeline) span(s Span) drawnSpan {
	w := (t.part(s.To) - t.part(s.From)) * (100 - 2*margin)
	return drawnSpan{t.x(s.From), percent(max(w, .35)), t.x(s.To)}
}

func (t *Timeline) x(at float64) string { return percent(margin + t.part(at)*(100-2*margin)) }

func percent(f float64) string { return strconv.FormatFloat(f, 'f', 3, 64) + "%" }

// wrap breaks a text into lines of about n characters.
func wrap(text string, n int) []string {
	if utf8.RuneCountInString(text) <= n {
		return []string{text}
	}
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		word = shorten(word, 2*n)
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > n {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	lines = append(lines, line)
	if len(lines) > 8 {
		lines = append(slices.Clone(lines[:8]), "…")
	}
	return lines
}

func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
