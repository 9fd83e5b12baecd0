package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// brought is what applying one source has brought into the directory so far. It is kept in the state
// directory, one file a source, so that manifests are what their authors wrote. Where it is lost,
// nothing that came before is pruned.
type brought struct {
	Source string                  `json:"source"` // the absolute path of what was applied
	Jobs   map[string]*broughtKeys `json:"jobs"`   // by id

	path string // of the record
}

// broughtKeys are the keys of metadata that came with a job: they go when the source drops them.
type broughtKeys struct {
	Labels      []string `json:"labels,omitempty"`
	Annotations []string `json:"annotations,omitempty"`
}

// recordDir is where the records lie.
func (g *globals) recordDir() (string, error) {
	dir, err := g.directory()
	if err != nil {
		return "", err
	}
	if dir, err = findDir(dir); err != nil {
		return "", err
	}
	state, err := stateDir(dir)
	return filepath.Join(state, "applied"), err
}

// recordOf reads the record of a source; it is empty if there is none. It is nil for what cannot have
// one: standard input, and what lies in the directory itself.
func (g *globals) recordOf(arg string) (*brought, error) {
	if arg == "-" {
		return nil, nil
	}
	source, err := filepath.Abs(arg)
	if err == nil {
		source, err = filepath.EvalSymlinks(source)
	}
	if err != nil {
		return nil, err
	}
	dir, err := g.directory()
	if err != nil {
		return nil, err
	}
	if dir, err = findDir(dir); err != nil {
		return nil, err
	}
	if source == dir || inside(source, dir) {
		return nil, nil
	}
	records, err := g.recordDir()
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(source))
	b := &brought{Source: source, Jobs: map[string]*broughtKeys{}, path: filepath.Join(records, hex.EncodeToString(sum[:8])+".json")}
	return b, b.read()
}

func (b *brought) read() error {
	data, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	was := brought{}
	if err := json.Unmarshal(data, &was); err != nil {
		return fmt.Errorf("%s: %w; remove it, and nothing that was applied before will be pruned", b.path, err)
	}
	if was.Source == b.Source && was.Jobs != nil {
		b.Jobs = was.Jobs
	}
	return nil
}

// keys are those that came with a job before.
func (b *brought) keys(id string) broughtKeys {
	if b == nil || b.Jobs[id] == nil {
		return broughtKeys{}
	}
	return *b.Jobs[id]
}

// write replaces the record as a whole.
func (b *brought) write() error {
	dir := filepath.Dir(b.path)
	if len(b.Jobs) == 0 {
		if err := os.Remove(b.path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	if was, err := os.ReadFile(b.path); err == nil && string(was) == string(data) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return replaceFile(b.path, data, 0o600)
}

// records reads the records of all sources.
func (g *globals) records() (all []*brought) {
	dir, err := g.recordDir()
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		b := &brought{path: filepath.Join(dir, e.Name())}
		if data, err := os.ReadFile(b.path); err == nil && json.Unmarshal(data, b) == nil {
			all = append(all, b)
		}
	}
	return all
}

// forget takes jobs out of all records: one of the same name that somebody declares later was not
// brought by an apply.
func forget(g *globals, ids []string) {
	if len(ids) == 0 {
		return
	}
	for _, b := range g.records() {
		n := len(b.Jobs)
		for _, id := range ids {
			delete(b.Jobs, id)
		}
		if len(b.Jobs) < n {
			if err := b.write(); err != nil {
				fmt.Fprintln(g.Err, "Warning: "+plain(err.Error()))
			}
		}
	}
}

// prune removes what an earlier apply of the source brought and the source no longer has.
func (o *applying) prune(l *live, s *source) error {
	if s.record == nil {
		return nil
	}
	if s.unread {
		return fmt.Errorf("%s: not pruned, since something in it cannot be read", s.arg)
	}
	var gone []string
	for id := range s.record.Jobs {
		if !slices.Contains(s.ids, id) {
			gone = append(gone, id)
		}
	}
	slices.Sort(gone)
	if len(gone) > 0 && len(s.ids) == 0 && !o.pruneAll {
		return fmt.Errorf("%s: not pruned: it holds no job any more, and every one of the %s that came from it would be removed; --prune-all does that",
			s.arg, count(len(gone), "job"))
	}
	others := map[string]bool{}
	for _, b := range o.g.records() {
		for id := range b.Jobs {
			others[id] = others[id] || b.Source != s.record.Source
		}
	}
	for _, t := range o.sources {
		for _, id := range t.ids {
			others[id] = others[id] || t != s
		}
	}
	var errs []error
	for _, id := range gone {
		_, there := l.where[id]
		if !there || others[id] {
			if !o.dry {
				delete(s.record.Jobs, id)
			}
			continue
		}
		if !o.dry {
			if err := l.edit(o.ctx, id, removal); err != nil && !errors.Is(err, errNotFound) {
				errs = append(errs, err)
				continue
			}
			delete(s.record.Jobs, id)
		}
		o.print(id, "pruned", "")
	}
	return allErrors(o.g, errs)
}
