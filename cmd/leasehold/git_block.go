package main

import (
	"bytes"
	"strconv"
	"strings"
)

// block is what install adds to a file, between two lines by which uninstall finds it again.
type block struct {
	name  string // of the directory in the checkout
	lines []string
}

func (b block) begin() string {
	return "# leasehold git install " + strconv.Quote(b.name) + " (leasehold git uninstall removes it)"
}
func (b block) end() string { return "# leasehold end " + strconv.Quote(b.name) }

// noBreak follows the first line of a block where the file ended without a line break.
const noBreak = " +"

// remove returns text without the block.
func (b block) remove(text []byte) []byte {
	lo := lineAt(text, b.begin())
	if lo < 0 {
		return text
	}
	n := lineAt(text[lo:], b.end())
	if n < 0 {
		return text
	}
	hi := lo + n + len(b.end())
	if hi < len(text) && text[hi] == '\n' {
		hi++
	}
	if bytes.HasPrefix(text[lo+len(b.begin()):], []byte(noBreak)) && lo > 0 && hi == len(text) {
		lo--
	}
	return append(text[:lo:lo], text[hi:]...)
}

// add returns text with the block at its end, in the place of an older one.
func (b block) add(text []byte) []byte {
	begin := b.begin()
	text = b.remove(text)
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text[:len(text):len(text)], '\n')
		begin += noBreak
	}
	lines := append(append([]string{begin}, b.lines...), b.end())
	return append(text[:len(text):len(text)], strings.Join(lines, "\n")+"\n"...)
}

// lineAt finds a line that begins with want.
func lineAt(text []byte, want string) int {
	if bytes.HasPrefix(text, []byte(want)) {
		return 0
	}
	if i := bytes.Index(text, []byte("\n"+want)); i >= 0 {
		return i + 1
	}
	return -1
}
