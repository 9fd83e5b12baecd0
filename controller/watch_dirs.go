package controller

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"leasehold.dev/leasehold/manifests"
)

const maxLinks = 40

func (w *watcher) clear() {
	w.dirs = map[string]bool{}
	w.hops = map[string][]string{}
	w.links = map[string][]string{}
	w.blind = map[string]error{}
}

// watchAll begins anew. Whoever calls it asks for a rescan.
func (w *watcher) watchAll() {
	if w.fs != nil {
		for _, dir := range w.fs.WatchList() {
			w.fs.Remove(dir) // it may be another directory by now that has the name
		}
	}
	w.clear()
	clear(w.paths)
	for file := range w.also {
		w.watch(filepath.Dir(file), false)
	}
	w.watch(filepath.Dir(w.root), false)
	w.is, w.lost, w.remote = nil, true, ""
	if fi, err := os.Stat(w.root); err == nil && fi.IsDir() {
		w.is, w.lost, w.remote = fi, false, remoteKind(w.root)
		w.walk(w.root, false)
	}
}

// retry tries again what could not be watched.
func (w *watcher) retry() {
	fi, err := os.Stat(w.root)
	if err != nil || !fi.IsDir() {
		fi = nil
	}
	switch {
	case fi == nil && w.lost:
	case fi == nil || w.lost || !os.SameFile(fi, w.is):
		w.watchAll()
		w.batch.Rescan = true
	case len(w.blind) > 0 || w.remote != "":
		for _, dir := range slices.Collect(maps.Keys(w.blind)) {
			if w.dirs[dir] {
				w.walk(dir, false)
			} else {
				w.watch(dir, false)
			}
		}
		w.batch.Rescan = true
	}
}

// watch adds a directory. It must be watched before it is listed, so that nothing is missed.
func (w *watcher) watch(dir string, counts bool) {
	w.dirs[dir] = w.dirs[dir] || counts
	err := w.add(dir)
	switch {
	case err == nil:
		delete(w.blind, dir)
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		if counts {
			w.batch.Rescan = true // it may have been seen by a scan
		}
		delete(w.blind, dir)
		delete(w.dirs, dir)
	default:
		w.blind[dir] = err
	}
}

// walk watches a directory and those below it, and reports the manifests in them, unless a rescan
// will.
func (w *watcher) walk(dir string, report bool) {
	w.watch(dir, true)
	if !w.dirs[dir] {
		return // gone again
	}
	// What cannot be listed is polled, as if it could not be watched; the scan says why.
	f, err := os.Open(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			w.blind[dir] = err
		}
		return
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		w.blind[dir] = err
	}
	for _, e := range entries {
		name := filepath.Join(dir, e.Name())
		switch {
		case manifests.IsManifest(e.Name()):
			path := w.rel(name)
			if report {
				w.paths[path] = true
			}
			if e.Type() == fs.ModeSymlink {
				w.track(path)
			}
		case e.IsDir() && !strings.HasPrefix(e.Name(), "."):
			w.walk(name, report)
		}
	}
}

// drop forgets a directory that is gone or has another name now, and those below it.
func (w *watcher) drop(dir string) {
	for d := range w.dirs {
		if d == dir || strings.HasPrefix(d, dir+string(filepath.Separator)) {
			delete(w.dirs, d)
			delete(w.blind, d)
			if w.fs != nil {
				w.fs.Remove(d)
			}
		}
	}
}

// mend adds watches that are not there. fsnotify keeps one name for a directory: where it was seen
// under its new name before it was known to have left the old one, the watch went with the old one.
func (w *watcher) mend() {
	if w.fs == nil {
		return
	}
	have := map[string]bool{}
	for _, dir := range w.fs.WatchList() {
		have[dir] = true
	}
	for dir, counts := range w.dirs {
		switch {
		case have[dir] || w.blind[dir] != nil:
		case counts:
			w.walk(dir, false)
		default:
			w.watch(dir, false)
		}
	}
	// A directory that links lead to may have come or gone.
	for path := range w.links {
		w.track(path)
	}
}

// track finds out what a manifest's path leads through, if it is a link, and watches that.
func (w *watcher) track(path string) {
	for _, hop := range w.links[path] {
		if rest := slices.DeleteFunc(w.hops[hop], func(p string) bool { return p == path }); len(rest) > 0 {
			w.hops[hop] = rest
		} else {
			delete(w.hops, hop)
		}
	}
	delete(w.links, path)
	for _, hop := range w.follow(path) {
		if !slices.Contains(w.hops[hop], path) {
			w.hops[hop] = append(w.hops[hop], path)
			w.links[path] = append(w.links[path], hop)
		}
		if _, ok := w.dirs[filepath.Dir(hop)]; !ok {
			w.watch(filepath.Dir(hop), false)
		}
	}
}

// follow returns every place inside the root that decides where the link at path leads: for
// a.yaml -> ..data/a.yaml and ..data -> ..v1 these are ..data, ..v1 and ..v1/a.yaml. There are none
// if it is not a link. Where something is missing, its place is the last.
func (w *watcher) follow(path string) (hops []string) {
	at := filepath.Join(w.root, filepath.FromSlash(path))
	at, todo := filepath.Dir(at), []string{filepath.Base(at)}
	links := 0
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if name == "" || name == "." {
			continue
		}
		here := filepath.Join(at, name) // ".." goes up, since at has no links left in it
		if here != w.root && !strings.HasPrefix(here, w.root+string(filepath.Separator)) {
			return hops
		}
		if links > 0 && name != ".." {
			hops = append(hops, here)
		}
		target, err := os.Readlink(here)
		if err != nil {
			if links == 0 {
				return nil
			}
			if _, err := os.Lstat(here); err != nil {
				return hops
			}
			at = here
			continue
		}
		if links++; links > maxLinks {
			return hops
		}
		if filepath.IsAbs(target) {
			rel, ok := strings.CutPrefix(target, w.root+string(filepath.Separator))
			if !ok {
				return hops
			}
			at, target = w.root, rel
		}
		todo = append(strings.Split(filepath.ToSlash(target), "/"), todo...)
	}
	return hops
}

// blindness says in one sentence what cannot be watched.
func (w *watcher) blindness() error {
	if len(w.blind) == 0 {
		return fmt.Errorf("%s is on %s, which does not announce changes made elsewhere: it is scanned every %v, too", w.root, w.remote, watchPoll)
	}
	dirs := make([]string, 0, len(w.blind))
	for dir := range w.blind {
		dirs = append(dirs, dir)
	}
	slices.Sort(dirs)
	err := w.blind[dirs[0]]
	advice := ""
	switch {
	case errors.Is(err, syscall.ENOSPC):
		advice = " (the limit is fs.inotify.max_user_watches)"
	case errors.Is(err, syscall.EMFILE):
		advice = " (the limit is fs.inotify.max_user_instances, or that of open files)"
	}
	return fmt.Errorf("%d of %d directories cannot be watched and are scanned every %v instead, %s among them: %w%s",
		len(dirs), len(w.dirs), watchPoll, dirs[0], err, advice)
}

func (w *watcher) rel(name string) string {
	rel, err := filepath.Rel(w.root, name)
	if err != nil {
		return name
	}
	return filepath.ToSlash(rel)
}
