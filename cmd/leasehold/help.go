package main

import (
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpWidth is how many columns the help has.
const helpWidth = 100

// fitHelp makes the help of a command and those below it fit the width.
func fitHelp(cmd *cobra.Command) {
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 100"))
	var each func(*cobra.Command)
	each = func(c *cobra.Command) {
		c.Long = reflow(c.Long, helpWidth)
		for _, sub := range c.Commands() {
			each(sub)
		}
	}
	each(cmd)
}

// reflow breaks the lines of paragraphs at the width. Lines that begin with a space are no paragraph:
// what follows such a line, further in, is left as it stands.
func reflow(text string, width int) string {
	var out strings.Builder
	var words []string
	flush := func() {
		column := 0
		for i, w := range words {
			n := utf8.RuneCountInString(w)
			switch {
			case i == 0:
			case column+1+n > width:
				out.WriteByte('\n')
				column = 0
			default:
				out.WriteByte(' ')
				column++
			}
			out.WriteString(w)
			column += n
		}
		if len(words) > 0 {
			out.WriteByte('\n')
		}
		words = nil
	}
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, " "):
			flush()
			if line != "" {
				indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
				if utf8.RuneCountInString(line) > width {
					gap := strings.LastIndex(line, "  ") + 2 // a table: its last column goes on below itself
					line = strings.ReplaceAll(line[:gap]+reflow(line[gap:], width-gap), "\n", "\n"+strings.Repeat(" ", max(gap, len(indent))))
				}
			}
			out.WriteString(line + "\n")
		default:
			words = append(words, strings.Fields(line)...)
		}
	}
	flush()
	return strings.TrimSuffix(out.String(), "\n")
}
