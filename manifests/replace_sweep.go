package manifests

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
)

// Sweep removes the temps that a crash has left behind, and leaves those of running processes
// alone. A save that a swap had displaced, and that nobody had looked at yet, is put back into its
// place; if that holds a newer one by now it is kept beside it. The error tells of the latter, and
// of what could not be removed.
func (t *Tree) Sweep() error {
	t.graves.mu.Lock()
	defer t.graves.mu.Unlock()
	var errs []error
	if t.temp != nil {
		errs = append(errs, t.sweepTemps())
	}
	errs = append(errs, t.sweepDir("."))
	return errors.Join(errs...)
}

// sweepTemps sweeps the directory for temps.
func (t *Tree) sweepTemps() error {
	names, err := t.temp.entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range names {
		l, ok := parseTemp(n.Name())
		if !ok {
			continue
		}
		path, err := url.PathUnescape(l.stem)
		if err != nil {
			continue
		}
		parent, name := splitPath(path)
		d, err := t.openDir(parent)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", n.Name(), err))
			continue
		}
		errs = append(errs, t.sweepOne(l, place{dir: d, name: name, path: path}, t.temp))
		d.close()
	}
	return errors.Join(errs...)
}

// sweepDir sweeps a directory of the tree and those below it. Directories that start with a dot
// are among them: links may lead there.
func (t *Tree) sweepDir(path string) error {
	d, err := t.openDir(path)
	if err != nil {
		if path != "." && (errors.Is(err, fs.ErrNotExist) || isDenied(err)) {
			return nil
		}
		return err
	}
	defer d.close()
	if t.temp != nil {
		here, err1 := d.identity()
		temps, err2 := t.temp.identity()
		if err := errors.Join(err1, err2); err != nil || here == temps {
			return err
		}
	}
	names, err := d.entries()
	if err != nil {
		return err
	}
	var errs []error
	for _, n := range names {
		if n.IsDir() && n.Name() != ".git" {
			errs = append(errs, t.sweepDir(JoinPath(path, n.Name())))
		}
		l, ok := parseTemp(n.Name())
		if !ok {
			continue
		}
		name := l.stem
		if strings.Contains(name, "~") { // shortened
			i := slices.IndexFunc(names, func(e fs.DirEntry) bool { return shortName(e.Name()) == l.stem })
			if i >= 0 {
				name = names[i].Name()
			}
		}
		errs = append(errs, t.sweepOne(l, place{dir: d, name: name, path: JoinPath(path, name)}, d))
	}
	return errors.Join(errs...)
}

// leftover is what the name of a temp says. Digests are empty for one that was never in place.
type leftover struct{ temp, stem, old, next string }

func parseTemp(name string) (leftover, bool) {
	l := leftover{temp: name}
	rest, ok := strings.CutPrefix(name, ".")
	i := strings.LastIndex(rest, tempMark)
	if !ok || i < 1 {
		return l, false
	}
	l.stem = rest[:i]
	parts := strings.Split(rest[i+len(tempMark):], "-")
	switch {
	case len(parts) == 2 && parts[0] == "new" && len(parts[1]) == 8:
		return l, true
	case len(parts) == 3 && len(parts[0]) == 16 && len(parts[1]) == 16 && len(parts[2]) == 8:
		l.old, l.next = parts[0], parts[1]
		return l, true
	}
	return l, false
}

func (t *Tree) sweepOne(l leftover, at place, d *dir) error {
	m, err := d.stat(l.temp)
	if err != nil {
		return ignoreMissing(err)
	}
	if m.kind == 0 {
		f, err := d.open(l.temp)
		if err != nil {
			return ignoreMissing(err)
		}
		defer f.close()
		if !f.abandoned() {
			return nil
		}
		data, err := f.read(m.Size)
		if err != nil {
			return err
		}
		if sum := shortSum(data); l.next == "" || sum == l.next || sum == l.old {
			if err := t.before("sweep", at.path); err != nil {
				return err
			}
			return ignoreMissing(d.remove(l.temp))
		}
	}
	// Neither what was to be replaced nor what was to replace it: somebody saved this. Or planted it, to
	// have us put it where they may not.
	now, err := t.identify(at.dir, at.name)
	if m.kind != 0 && m.kind != fs.ModeSymlink || m.kind == 0 && m.links > 1 || err == nil && m.uid != now.uid {
		return fmt.Errorf("%s: %s has a name like a file of ours, but cannot have been in its place; it is left alone", at.path, l.temp)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case now.kind != 0 || now.busy || shortSum(now.data) != l.next:
		return t.keep(at, d, l.temp)
	}
	back, err := t.putBack(at.path, at, d, l.temp, now)
	if err == nil && !back.gone {
		err = d.remove(l.temp)
	}
	return errors.Join(err, at.dir.sync())
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
