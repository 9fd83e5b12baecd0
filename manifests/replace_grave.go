package manifests

import (
	"bytes"
	"errors"
	"sync"
	"time"
)

// A writer whose open was under way during the swap may still write to the displaced file. So that
// file lies in a grave for a while before it is removed, under a lease where there are leases: then
// such a writer waits until we have seen it.
const (
	graveTime = 100 * time.Millisecond
	graveLook = 10 * time.Millisecond // a late writer waits at most this long
	graveMax  = 64                    // each holds two or three descriptors
)

type grave struct {
	path  string
	at    place
	dir   *dir
	temp  string
	file  *file
	was   ident // the buried file
	put   ident // what stands in its place, as far as we know
	since time.Time
}

type graves struct {
	mu      sync.Mutex // held while names are swapped, so that no two swaps of ours meet
	list    []*grave
	ticking bool
	closed  bool
}

// bury keeps the file under the temp name for a while. It takes over f, the place and the temp.
// graves.mu is held.
func (s *swap) bury(f *file, was, put ident) {
	g := &grave{path: s.path, at: s.at, dir: s.dir.hold(), temp: s.temp, file: f, was: was, put: put, since: s.t.now()}
	g.at.dir.hold()
	s.t.lease(f)
	s.buried = true
	gs := &s.t.graves
	gs.list = append(gs.list, g)
	if len(gs.list) > graveMax || gs.closed {
		s.t.openGraves(true)
	}
	if !gs.ticking && len(gs.list) > 0 {
		gs.ticking = true
		time.AfterFunc(graveLook, s.t.tick)
	}
}

// succeed tells the graves that what stood in a place was replaced by ours again.
func (gs *graves) succeed(old meta, next ident) {
	for _, g := range gs.list {
		if g.put.same(old) {
			g.put = next
		}
	}
}

func (t *Tree) tick() {
	t.graves.mu.Lock()
	defer t.graves.mu.Unlock()
	t.openGraves(false)
	if t.graves.ticking = len(t.graves.list) > 0; t.graves.ticking {
		time.AfterFunc(graveLook, t.tick)
	}
}

func (t *Tree) closeGraves() error {
	t.graves.mu.Lock()
	defer t.graves.mu.Unlock()
	t.graves.closed = true
	return t.openGraves(true)
}

// openGraves looks at each grave: a file that was written to goes back into its place, the others
// are removed when their time has come, or all of them.
func (t *Tree) openGraves(all bool) error {
	var errs []error
	var rest []*grave
	for _, g := range t.graves.list {
		due := all || t.now().Sub(g.since) >= t.graveTime
		done, late, err := t.lookInto(g, due)
		if late {
			t.report(g.path, err)
		}
		errs = append(errs, err)
		if !done {
			rest = append(rest, g)
			continue
		}
		g.file.close()
		g.at.dir.close()
		g.dir.close()
	}
	t.graves.list = rest
	return errors.Join(errs...)
}

func (t *Tree) lookInto(g *grave, due bool) (done, late bool, err error) {
	if !t.disturbed(g, due) {
		if !due {
			return false, false, nil
		}
		if err := t.before("unlink", g.path); err != nil {
			return true, false, err
		}
		return true, false, g.dir.remove(g.temp)
	}
	now, err := t.identify(g.at.dir, g.at.name)
	if err == nil && !g.put.is(now) {
		return true, true, t.keep(g.at, g.dir, g.temp)
	}
	// The place is empty or holds what we put there: the late save is newer.
	back, err := t.putBack(g.path, g.at, g.dir, g.temp, g.put)
	if err != nil {
		return true, true, err
	}
	if !back.gone {
		err = g.dir.remove(g.temp)
	}
	return true, true, errors.Join(err, g.at.dir.sync())
}

// disturbed tells whether somebody wrote to the buried file, or is about to.
func (t *Tree) disturbed(g *grave, closely bool) bool {
	if g.file.leased && g.file.wanted() {
		return true
	}
	if !g.file.leased && t.lease(g.file) == leaseBusy {
		return true
	}
	m, err := g.file.stat()
	if err != nil {
		return false
	}
	if m.Size != g.was.Size || m.Mtime != g.was.Mtime {
		return true
	}
	if !closely {
		return false
	}
	data, err := g.file.read(m.Size)
	return err == nil && !bytes.Equal(data, g.was.data)
}
