package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/term"
)

// newLogger returns the log of a command: a readable line per decision, or JSON for machines.
func newLogger(format string, w io.Writer, level slog.Level) (*slog.Logger, error) {
	switch format {
	case "text":
		return slog.New(&lineHandler{mu: &sync.Mutex{}, w: w, level: level, colour: colourful(w)}), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})), nil
	}
	return nil, usageError("--log-format: Unsupported value: %q: must be text or json", format)
}

// lockedWriter lets several goroutines write whole lines.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	if l, ok := w.(*lockedWriter); ok {
		w = l.w
	}
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colourful reports whether w may be given colour.
func colourful(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// lineHandler prints "15:04:05 job: what happened".
type lineHandler struct {
	mu     *sync.Mutex
	w      io.Writer
	level  slog.Level
	colour bool
	attrs  []slog.Attr
}

func (h *lineHandler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *lineHandler) WithGroup(string) slog.Handler { return h }

func (h *lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = append(next.attrs[:len(next.attrs):len(next.attrs)], attrs...)
	return &next
}

func (h *lineHandler) Handle(_ context.Context, r slog.Record) error {
	subject := ""
	look := func(a slog.Attr) bool {
		// A text about a file names it, with the line, where that matters.
		if a.Key == "job" || a.Key == "file" && subject == "" && !strings.Contains(r.Message, a.Value.String()) {
			subject = a.Value.String() + ": "
		}
		return true
	}
	for _, a := range h.attrs {
		look(a)
	}
	r.Attrs(look)
	begin, end := "", ""
	if h.colour && r.Level >= slog.LevelError {
		begin, end = "\x1b[31m", "\x1b[0m"
	} else if h.colour && r.Level >= slog.LevelWarn {
		begin, end = "\x1b[33m", "\x1b[0m"
	}
	var b strings.Builder
	for text := range strings.SplitSeq(r.Message, "\n") {
		if strings.HasPrefix(text, subject) {
			subject = ""
		}
		fmt.Fprintf(&b, "%s %s%s%s%s\n", r.Time.Format("15:04:05"), begin, plain(subject), plain(text), end)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, b.String())
	return err
}

// plain keeps what a manifest contains from steering the terminal.
func plain(s string) string {
	if strings.IndexFunc(s, unsafeRune) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if unsafeRune(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unsafeRune(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}
