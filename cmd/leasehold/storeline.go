package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// line is one request to store exec, or the error that it is none.
type line struct {
	op     string
	id     string
	owner  string
	owners []string
	fence  int64
	now    float64
	ttl    float64
	result string
	err    error

	answer any
}

// lineFields are the fields that each operation has, all of them required.
var lineFields = map[string][]string{
	"enqueue":    {"id"},
	"state":      {"id"},
	"claim":      {"id", "owner", "now", "ttl"},
	"renew":      {"id", "owner", "fence", "now", "ttl"},
	"complete":   {"id", "owner", "fence", "now", "result"},
	"release":    {"id", "owner", "fence"},
	"claim-many": {"id", "owners", "now", "ttl"},
}

// parseLine reads one JSON object. encoding/json alone would take the last of two equal keys, keys
// in another case, and a fence rounded to a float.
func parseLine(text []byte) *line {
	l := &line{}
	if l.err = l.parse(text); l.err != nil {
		return &line{err: l.err}
	}
	return l
}

func (l *line) parse(text []byte) error {
	if !utf8.Valid(text) {
		return errors.New("the line is not valid UTF-8")
	}
	if halfSurrogate(text) {
		return errors.New("the line has half of a surrogate pair, which is no character")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return errors.New("expected a JSON object")
	}
	var seen []string
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return notJSON(err)
		}
		name := key.(string)
		if slices.Contains(seen, name) {
			return fmt.Errorf("%s: is given twice", name)
		}
		seen = append(seen, name)
		value, err := d.Token()
		if err != nil {
			return notJSON(err)
		}
		if err := l.set(name, value, d); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil {
		return notJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows the JSON object")
	}
	return l.check(seen)
}

// halfSurrogate reports whether text escapes half of a surrogate pair. encoding/json would put the
// same character for each of them, and make two ids one.
func halfSurrogate(text []byte) bool {
	unit := func(i int) rune { // of the escape at i, or -1
		if i+6 > len(text) || text[i] != '\\' || text[i+1] != 'u' {
			return -1
		}
		n, err := strconv.ParseUint(string(text[i+2:i+6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(n)
	}
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		if r := unit(i); utf16.IsSurrogate(r) {
			if utf16.DecodeRune(r, unit(i+6)) == utf8.RuneError {
				return true
			}
			i += 10
		}
		i++ // past what is escaped
	}
	return false
}

func notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the JSON object does not end")
	}
	return fmt.Errorf("not JSON: %w", err)
}

func (l *line) set(name string, value json.Token, d *json.Decoder) error {
	text := func(to *string) error {
		s, ok := value.(string)
		if !ok {
			return fmt.Errorf("%s: must be a string", name)
		}
		*to = s
		return nil
	}
	number := func(to *float64) error {
		n, ok := value.(json.Number)
		f, err := strconv.ParseFloat(string(n), 64)
		if !ok || err != nil {
			return fmt.Errorf("%s: must be a finite number", name)
		}
		*to = f
		return nil
	}
	switch name {
	case "op":
		return text(&l.op)
	case "id":
		return text(&l.id)
	case "owner":
		return text(&l.owner)
	case "result":
		return text(&l.result)
	case "now":
		return number(&l.now)
	case "ttl":
		return number(&l.ttl)
	case "fence":
		n, ok := value.(json.Number)
		f, err := strconv.ParseInt(string(n), 10, 64)
		if !ok || err != nil {
			return errors.New("fence: must be a whole number of at most 64 bits")
		}
		l.fence = f
		return nil
	case "owners":
		if value != json.Delim('[') {
			return errors.New("owners: must be an array of strings")
		}
		l.owners = []string{}
		for d.More() {
			t, err := d.Token()
			if err != nil {
				return notJSON(err)
			}
			s, ok := t.(string)
			if !ok {
				return errors.New("owners: must be an array of strings")
			}
			l.owners = append(l.owners, s)
		}
		_, err := d.Token()
		return err
	}
	return fmt.Errorf("%s: unknown field", name)
}

func (l *line) check(seen []string) error {
	if !slices.Contains(seen, "op") {
		return errors.New("op: is missing")
	}
	fields, ok := lineFields[l.op]
	if !ok {
		return fmt.Errorf("op: %q is none; must be enqueue, state, claim, renew, complete, release or claim-many", l.op)
	}
	for _, f := range fields {
		if !slices.Contains(seen, f) {
			return fmt.Errorf("%s: is missing; %s needs %s", f, l.op, strings.Join(fields, ", "))
		}
	}
	for _, f := range seen {
		if f != "op" && !slices.Contains(fields, f) {
			return fmt.Errorf("%s: does not belong to %s", f, l.op)
		}
	}
	return nil
}
