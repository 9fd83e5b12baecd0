package manifests

import (
	"bytes"
	"errors"
	"strings"
)

// arrange plans how a list comes to consist of other items: order holds indices of items that are
// there, which keep their bytes and the comments above them, and -1 for each of fresh in turn.
func (e *editor) arrange(seq *node, order []int, fresh []*node) error {
	if seq == nil || seq.kind != sequenceNode || len(seq.kids) == 0 || len(order) == 0 {
		return errors.New("cannot be set: there is no list of its own")
	}
	kept := map[int]bool{}
	for _, i := range order {
		kept[i] = true
	}
	for i, kid := range seq.kids {
		if !kept[i] {
			if err := e.free(kid); err != nil {
				return err
			}
		}
	}
	if seq.style == flowStyle {
		return e.arrangeFlow(seq, order, fresh)
	}
	return e.arrangeBlock(seq, order, fresh)
}

func (e *editor) arrangeFlow(seq *node, order []int, fresh []*node) error {
	open, n := seq.content(e.data), len(seq.kids)
	if open >= len(e.data) || e.data[open] != '[' {
		return errors.New("cannot be set: its list has no brackets")
	}
	lo, hi := seq.kids[0].off, seq.kids[n-1].end(e.data)
	st := jsonStyle{colon: ": ", comma: ", "}
	between := ", "
	if prefix, own := e.blank(lo); own {
		between = "," + e.eol + prefix
		if e.unit.json {
			st.eol, st.prefix, st.step = e.eol, prefix, "  "
		}
	}
	if n > 1 {
		if s := string(e.data[seq.kids[0].end(e.data):seq.kids[1].off]); strings.Trim(s, " \t\r\n") == "," {
			between = s
		}
	}
	var b strings.Builder
	for i, from := range order {
		if i > 0 {
			b.WriteString(between)
		}
		if from >= 0 {
			b.Write(e.data[seq.kids[from].off:seq.kids[from].end(e.data)])
			continue
		}
		if strings.TrimSpace(between) == between { // [1,2], all on a line
			st.comma, st.colon = ",", ":"
		}
		text := flowYAML(fresh[0])
		if e.unit.json {
			text = e.flowText(fresh[0], st)
		}
		b.WriteString(text)
		fresh = fresh[1:]
	}
	e.splice(lo, hi, b.String())
	return nil
}

func (e *editor) arrangeBlock(seq *node, order []int, fresh []*node) error {
	n := len(seq.kids)
	starts := make([]int, n+1) // of the lines of each item, the comments above them included
	prefix := ""
	for i := range seq.kids {
		dash := seq.content(e.data)
		if i > 0 {
			dash = skipSpace(e.data, seq.kids[i-1].end(e.data))
		}
		if dash >= e.unit.hi || e.data[dash] != '-' {
			return errors.New("cannot be set: an item has no dash")
		}
		in, own := e.blank(dash)
		if !own {
			return errors.New("cannot be set: its list does not begin on a line of its own")
		}
		if i == 0 {
			prefix, starts[0] = in, dash-len(in)
			continue
		}
		starts[i] = e.above(dash-len(in), e.lineStop(seq.kids[i-1].end(e.data)), len(prefix))
	}
	last := seq.kids[n-1].end(e.data)
	stop := e.comments(e.lineStop(last), len(prefix)+1)
	starts[n] = min(lineEnd(e.data, stop), e.unit.hi)
	if stop >= e.unit.hi {
		starts[n] = e.unit.hi
	}

	var b bytes.Buffer
	for _, from := range order {
		if from >= 0 {
			b.Write(e.data[starts[from]:starts[from+1]])
			if b.Len() > 0 && !isBreak(b.Bytes()[b.Len()-1]) {
				b.WriteString(e.eol)
			}
			continue
		}
		for i, line := range e.item(seq, fresh[0]) {
			if b.WriteString(prefix); i == 0 {
				b.WriteString("- ")
			} else {
				b.WriteString("  ")
			}
			b.WriteString(line)
			b.WriteString(e.eol)
		}
		fresh = fresh[1:]
	}
	text := b.String()
	if end := e.data[starts[n]-1]; !isBreak(end) { // the file's last line has no break, and keeps none
		text = strings.TrimRight(text, "\r\n")
	}
	e.splice(starts[0], starts[n], text)
	return nil
}

// above returns the start of the comment lines that stand right above the line at start, behind the
// line that ends at from, and are not indented deeper than the list.
func (e *editor) above(start, from, indent int) int {
	for start > from {
		line := start
		if line > 0 && e.data[line-1] == '\n' {
			line--
		}
		if line > 0 && e.data[line-1] == '\r' {
			line--
		}
		line = e.lineStart(line)
		text := e.data[line:start]
		in := indentOf(text)
		if line < from || in == len(text) || text[in] != '#' || in > indent {
			break
		}
		start = line
	}
	return start
}

// item writes a new item as the others are written.
func (e *editor) item(seq, value *node) []string {
	if d := seq.kids[0].deref(); value.kind != mappingNode || len(value.kids) == 0 || d != nil && d.style == flowStyle {
		return []string{flowYAML(value)}
	}
	return blockYAML(value, "")
}
