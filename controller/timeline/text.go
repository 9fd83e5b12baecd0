package timeline

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// mostColumns is how wide a timeline is printed at most.
const mostColumns = 100

// colours of the terminal, by what is drawn.
const (
	plainCell = iota
	overCell
	leaseCell
	doneCell
	badCell
	dimCell
)

var escapes = [...]string{"", "\x1b[36m", "\x1b[34m", "\x1b[32m", "\x1b[31m", "\x1b[2m"}

// canvas is a line of cells.
type canvas struct {
	cells []rune
	look  []int
}

func newCanvas(n int) *canvas {
	c := &canvas{make([]rune, n), make([]int, n)}
	for i := range c.cells {
		c.cells[i] = ' '
	}
	return c
}

func (c *canvas) put(x int, r rune, look int) {
	if x >= 0 && x < len(c.cells) {
		c.cells[x], c.look[x] = r, look
	}
}

func (c *canvas) text(x int, s string, look int) {
	for _, r := range s {
		c.put(x, r, look)
		x++
	}
}

func (c *canvas) line(colour bool) string {
	n := len(c.cells)
	for n > 0 && c.cells[n-1] == ' ' {
		n--
	}
	var b strings.Builder
	last := plainCell
	for i, r := range c.cells[:n] {
		if colour && c.look[i] != last {
			b.WriteString("\x1b[0m" + escapes[c.look[i]])
			last = c.look[i]
		}
		b.WriteRune(r)
	}
	if last != plainCell {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}

// Text prints the timeline for a terminal, in at most columns and 100 columns.
func (t *Timeline) Text(w io.Writer, columns int, colour bool) error {
	columns = max(min(columns, mostColumns), 40)
	side := 0
	for _, l := range t.Lanes {
		side = max(side, utf8.RuneCountInString(l.Worker))
	}
	side = min(side, 24) + 2
	width := columns - side
	var b strings.Builder
	row := func(label string, c *canvas) {
		line := pad(shorten(label, side-2), side) + c.line(colour)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	labels, marks := newCanvas(width), newCanvas(width)
	free := 0
	for i := range marks.cells {
		marks.put(i, '─', dimCell)
	}
	for _, k := range t.Ticks(6) {
		x := t.column(k.At, width)
		marks.put(x, '┬', dimCell)
		n := utf8.RuneCountInString(k.Label)
		if at := min(max(x-n/2, 0), width-n); at >= free {
			labels.text(at, k.Label, dimCell)
			free = at + n + 1
		}
	}
	for _, m := range t.Rules {
		marks.put(t.column(m.At, width), '◇', plainCell)
	}
	row("", labels)
	row("", marks)
	for _, l := range t.Lanes {
		row(l.Worker, t.lane(l, width))
	}
	b.WriteString("\n")
	t.legend(&b, columns, colour)
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *Timeline) column(at float64, width int) int {
	return int(math.Round(t.part(at) * float64(width-1)))
}

func (t *Timeline) lane(l *Lane, width int) *canvas {
	c := newCanvas(width)
	for i := range c.cells {
		c.put(i, '·', dimCell)
	}
	for _, s := range l.Stale {
		for x := t.column(s.From, width); x <= t.column(s.To, width); x++ {
			c.put(x, '╌', badCell)
		}
	}
	for _, b := range l.Bars {
		look := overCell
		switch b.End {
		case "running":
			look = leaseCell
		case "completed":
			look = doneCell
		}
		from, to := t.column(b.From, width), t.column(b.To, width)
		if b.To == t.To {
			to = width
		}
		fill := '█'
		if b.End == "expired" || b.End == "ended" {
			fill = '▓'
		}
		for x := from; x < max(to, from+1); x++ {
			c.put(x, fill, look)
		}
		label := fmt.Sprintf(" %d ", b.Fence)
		if b.More > 0 {
			label = fmt.Sprintf(" %d +%d ", b.Fence, b.More)
		}
		if n := len(label); to-from > n {
			c.text(from+1, label, plainCell)
		}
	}
	used := map[int]bool{}
	for _, m := range l.Marks {
		x := t.column(m.At, width)
		for used[x] && x < width-1 {
			x++
		}
		used[x] = true
		c.put(x, sign(m.Kind), lookOf(m.Kind))
	}
	return c
}

func sign(k Kind) rune {
	switch k {
	case Renewed:
		return '◆'
	case Completed:
		return '✔'
	case Released:
		return '◀'
	case Refused:
		return '✘'
	}
	return '◇'
}

func lookOf(k Kind) int {
	switch k {
	case Completed:
		return doneCell
	case Refused:
		return badCell
	}
	return plainCell
}

// mostTold is how many refusals are told below the lanes.
const mostTold = 8

// legend tells what was refused, and why, and names the signs that are there.
func (t *Timeline) legend(b *strings.Builder, columns int, colour bool) {
	var told []Mark
	seen := map[Kind]bool{}
	for _, l := range t.Lanes {
		for _, m := range l.Marks {
			seen[m.Kind] = true
			if m.Kind == Refused {
				told = append(told, m)
			}
		}
	}
	told = append(told, t.Rules...)
	slices.SortStableFunc(told, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	if n := len(told) - mostTold; n > 0 {
		fmt.Fprintf(b, "  … and %d before\n", n)
		told = told[n:]
	}
	for _, m := range told {
		for i, line := range wrap(m.Text, columns-4) {
			s := string(sign(m.Kind))
			if i > 0 {
				s = " "
			} else if colour && m.Kind == Refused {
				s = escapes[badCell] + s + "\x1b[0m"
			}
			b.WriteString(s + " " + line + "\n")
		}
	}
	key := []string{"█ lease, with its fence"}
	for _, k := range []struct {
		kind Kind
		text string
	}{{Renewed, "◆ renewed"}, {Released, "◀ released"}, {Completed, "✔ completed"}, {Refused, "✘ refused"}} {
		if seen[k.kind] {
			key = append(key, k.text)
		}
	}
	text := strings.Join(key, "  ") + "  axis: " + t.Unit()
	if t.Note != "" {
		text += "; " + t.Note
	}
	for _, line := range wrap(text, columns) {
		if colour {
			line = escapes[dimCell] + line + "\x1b[0m"
		}
		b.WriteString(line + "\n")
	}
}

func pad(s string, n int) string {
	if k := n - utf8.RuneCountInString(s); k > 0 {
		return s + strings.Repeat(" ", k)
	}
	return s
}

// clean keeps what a manifest contains from steering a terminal, and a drawing well-formed.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) {
			return '\uFFFD'
		}
		return r
	}, s)
}
