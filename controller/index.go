package controller

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// index knows which document stands for which job. An id belongs to the first document, in the
// order of keys and within one of documents, from which it can be read, accepted or not.
type index struct {
	mu   sync.Mutex
	keys map[string]*entry
	ids  map[string][]place // sorted; the first is the owner
	seen map[string]bool    // ids that this process has decided for
}

type entry struct {
	ids    []string             // per document; empty: none can be read
	absent time.Time            // since when the key is not there; zero: it is
	lost   map[string]time.Time // ids that are in its documents no more, and since when
}

// gone is the place of an id that its key has lost less than a second ago.
const gone = -1

type place struct {
	key string
	doc int
}

func comparePlaces(a, b place) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.doc, b.doc))
}

func newIndex() *index {
	return &index{keys: map[string]*entry{}, ids: map[string][]place{}, seen: map[string]bool{}}
}

// indexed is what a key's new content means for others.
type indexed struct {
	affected []string      // other keys whose documents have gained or lost an id
	gone     []string      // ids that no document has any more
	again    time.Duration // when to put the same once more, since ids have been lost; never: not
}

// put records what a key holds at a time. An id that it has lost counts for a second longer.
func (x *index) put(key string, ids []string, now time.Time) indexed {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.keys[key]
	if old == nil {
		old = &entry{}
		x.keys[key] = old
	}
	old.absent = time.Time{}
	if old.ids != nil && slices.Equal(old.ids, ids) && len(old.lost) == 0 {
		return indexed{again: never}
	}
	next := &entry{ids: ids}
	has := map[string]bool{}
	for _, id := range ids {
		has[id] = true
	}
	lose := func(id string, since time.Time) {
		if id != "" && !has[id] && left(since, now) > 0 {
			if next.lost == nil {
				next.lost = map[string]time.Time{}
			}
			if _, ok := next.lost[id]; !ok {
				next.lost[id] = since
			}
		}
	}
	for id, since := range old.lost {
		lose(id, since)
	}
	for _, id := range old.ids {
		lose(id, now)
	}
	out := x.replace(key, old, next)
	for _, since := range next.lost {
		out.again = sooner(out.again, left(since, now))
	}
	return out
}

// left is how much longer an absence must last before it counts.
func left(since, now time.Time) time.Duration {
	if d := absence - now.Sub(since); d <= absence {
		return max(d, 0)
	}
	return 0 // the clock was set back
}

// drop forgets a key.
func (x *index) drop(key string) indexed {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.keys[key]
	if old == nil {
		return indexed{again: never}
	}
	return x.replace(key, old, nil)
}

// replace puts the places of next where those of old are. Either may be nil.
func (x *index) replace(key string, old, next *entry) indexed {
	out := indexed{again: never}
	owners := map[string]string{} // of each id concerned, before
	note := func(id string) {
		if _, ok := owners[id]; !ok {
			owners[id] = ""
			if places := x.ids[id]; len(places) > 0 {
				owners[id] = places[0].key
			}
		}
	}
	old.each(key, func(id string, p place) { note(id) })
	next.each(key, func(id string, p place) { note(id) })
	old.each(key, func(id string, p place) {
		if at, found := slices.BinarySearchFunc(x.ids[id], p, comparePlaces); found {
			x.ids[id] = slices.Delete(x.ids[id], at, at+1)
		}
	})
	next.each(key, func(id string, p place) {
		at, _ := slices.BinarySearchFunc(x.ids[id], p, comparePlaces)
		x.ids[id] = slices.Insert(x.ids[id], at, p)
	})
	for id, was := range owners {
		is := ""
		if places := x.ids[id]; len(places) > 0 {
			is = places[0].key
		} else {
			delete(x.ids, id)
			out.gone = append(out.gone, id)
		}
		if was != is {
			out.affected = append(out.affected, was, is)
		}
	}
	if next == nil {
		delete(x.keys, key)
	} else {
		x.keys[key] = next
	}
	slices.Sort(out.gone)
	slices.Sort(out.affected)
	out.affected = slices.DeleteFunc(slices.Compact(out.affected), func(k string) bool { return k == key || k == "" })
	return out
}

// each calls f with every place of a key's entry.
func (e *entry) each(key string, f func(string, place)) {
	if e == nil {
		return
	}
	for i, id := range e.ids {
		if id != "" {
			f(id, place{key, i})
		}
	}
	for id := range e.lost {
		f(id, place{key, gone})
	}
}

// owner returns the document that an id belongs to, and since when it has been absent.
func (x *index) owner(id string) (p place, absent time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	places := x.ids[id]
	if len(places) == 0 {
		return place{}, time.Time{}
	}
	e := x.keys[places[0].key]
	if places[0].doc == gone {
		return places[0], e.lost[id]
	}
	return places[0], e.absent
}

// absent notes that a key is not there and returns since when. known is false if it never was.
func (x *index) absent(key string, now time.Time) (since time.Time, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.keys[key]
	if e == nil {
		return time.Time{}, false
	}
	if e.absent.IsZero() {
		e.absent = now
	}
	return e.absent, true
}

// all returns every key.
func (x *index) all() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys := make([]string, 0, len(x.keys))
	for k := range x.keys {
		keys = append(keys, k)
	}
	return keys
}

// keysOf returns the keys that the ids belong to.
func (x *index) keysOf(ids []string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	var keys []string
	for _, id := range ids {
		if places := x.ids[id]; len(places) > 0 {
			keys = append(keys, places[0].key)
		}
	}
	return keys
}

func (x *index) first(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.seen[id]
}

func (x *index) decided(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.seen[id] = true
}
