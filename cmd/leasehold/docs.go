package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newDocsCommand(g *globals) *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "docs man|markdown",
		Short: "Write the manual of this command line",
		Long: `Writes the manual: a page for each command, all of them to standard output, or each to a file of
its own in the directory of --output-dir. The same binary always writes the same bytes. The date of the
pages for man is that of SOURCE_DATE_EPOCH, else that of the commit the binary was built from.`,
		Example: `  # Install the pages for man
  leasehold docs man --output-dir /usr/local/share/man/man1

  # The whole manual in one file
  leasehold docs markdown >leasehold.md`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != "man" && args[0] != "markdown" {
				return usageError("name one format: man or markdown")
			}
			return nil
		},
		ValidArgs: []string{"man", "markdown"},
		RunE: func(cmd *cobra.Command, args []string) error {
			page := manPage
			if args[0] == "markdown" {
				page = func(c *cobra.Command) (string, []byte, error) { return markdownPage(c, dir == "") }
			}
			return writeDocs(g, cmd.Root(), page, dir)
		},
	}
	cmd.Flags().StringVar(&dir, "output-dir", "", "write a file for each command into this `directory`")
	_ = cmd.MarkFlagDirname("output-dir")
	return cmd
}

// writeDocs writes the pages of a command and of those below it.
func writeDocs(g *globals, c *cobra.Command, page func(*cobra.Command) (string, []byte, error), dir string) error {
	c.DisableAutoGenTag = true // it has the date of today
	short, long := c.Short, c.Long
	c.Short, c.Long = literal(short), literal(long)
	name, text, err := page(c)
	c.Short, c.Long = short, long
	if err != nil {
		return err
	}
	if dir == "" {
		_, err = g.Out.Write(text)
	} else if err = os.MkdirAll(dir, 0o755); err == nil {
		err = os.WriteFile(filepath.Join(dir, name), text, 0o644)
	}
	if err != nil {
		return err
	}
	below := c.Commands()
	slices.SortFunc(below, func(a, b *cobra.Command) int { return strings.Compare(a.Name(), b.Name()) })
	for _, sub := range below {
		if !sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if err := writeDocs(g, sub, page, dir); err != nil {
			return err
		}
	}
	return nil
}

func manPage(c *cobra.Command) (string, []byte, error) {
	header := &doc.GenManHeader{Source: "leasehold " + version(), Manual: "Leasehold manual", Date: docsDate()}
	var b bytes.Buffer
	if err := doc.GenMan(c, header, &b); err != nil {
		return "", nil, err
	}
	text := b.Bytes()
	if header.Date != nil && header.Date.Unix() == 0 {
		text = bytes.Replace(text, []byte(`"Jan 1970"`), []byte(`""`), 1) // better none
	}
	return strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1", text, nil
}

// docsDate is the date of the sources; nil leaves it to SOURCE_DATE_EPOCH.
func docsDate() *time.Time {
	if os.Getenv("SOURCE_DATE_EPOCH") != "" {
		return nil
	}
	date := time.Unix(0, 0).UTC()
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key != "vcs.time" {
				continue
			}
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				date = t
			}
		}
	}
	return &date
}

// markdownPage makes a page whose links lead to other files, or to other places in the same.
func markdownPage(c *cobra.Command, same bool) (string, []byte, error) {
	link := func(file string) string {
		if same {
			return "#" + strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "_", "-")
		}
		return file
	}
	var b bytes.Buffer
	if err := doc.GenMarkdownCustom(c, &b, link); err != nil {
		return "", nil, err
	}
	return strings.ReplaceAll(c.CommandPath(), " ", "_") + ".md", b.Bytes(), nil
}

// literal writes a help text, which is plain text, so that Markdown shows it as it is: what is
// indented keeps its lines.
func literal(text string) string {
	var b strings.Builder
	before := ""
	for line := range strings.Lines(text) {
		trimmed := strings.TrimRight(line, "\n")
		indented := strings.HasPrefix(trimmed, "  ")
		if trimmed != "" && before != "" && indented != strings.HasPrefix(before, "  ") {
			b.WriteString("\n")
		}
		switch {
		case indented:
			fmt.Fprintf(&b, "  %s\n", trimmed)
		default:
			b.WriteString(markdownSigns.Replace(trimmed) + line[len(trimmed):])
		}
		before = trimmed
	}
	return b.String()
}

var markdownSigns = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `_`, `\_`, `<`, `\<`, `>`, `\>`, "`", "\\`", `[`, `\[`, `]`, `\]`, `#`, `\#`, `|`, `\|`)
