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
	ids    []string // per document; empty: none can be read
	absent time.Time
}

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

// put records what a key holds now, and returns the other keys whose documents have thereby gained
// or lost an id.
func (x *index) put(key string, ids []string) (affected []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.keys[key]
	if old != nil && slices.Equal(old.ids, ids) {
		old.absent = time.Time{}
		return nil
	}
	if old != nil {
		affected = x.remove(key, old)
	}
	x.keys[key] = &entry{ids: ids}
	for i, id := range ids {
		if id == "" {
			continue
		}
		p := place{key, i}
		places := x.ids[id]
		at, _ := slices.BinarySearchFunc(places, p, comparePlaces)
		if at == 0 && len(places) > 0 {
			affected = append(affected, places[0].key)
		}
		x.ids[id] = slices.Insert(places, at, p)
	}
	return others(affected, key)
}

// drop forgets a key, and returns the other keys whose documents have thereby gained an id.
func (x *index) drop(key string) (affected []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := x.keys[key]
	if old == nil {
		return nil
	}
	delete(x.keys, key)
	return others(x.remove(key, old), key)
}

func (x *index) remove(key string, e *entry) (affected []string) {
	for i, id := range e.ids {
		if id == "" {
			continue
		}
		places := x.ids[id]
		at, found := slices.BinarySearchFunc(places, place{key, i}, comparePlaces)
		if !found {
			continue
		}
		places = slices.Delete(places, at, at+1)
		if len(places) == 0 {
			delete(x.ids, id)
			continue
		}
		x.ids[id] = places
		if at == 0 {
			affected = append(affected, places[0].key)
		}
	}
	return affected
}

func others(keys []string, key string) []string {
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(k string) bool { return k == key })
}

// owner returns the document that an id belongs to, and since when its key has been absent.
func (x *index) owner(id string) (p place, absent time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	places := x.ids[id]
	if len(places) == 0 {
		return place{}, time.Time{}
	}
	return places[0], x.keys[places[0].key].absent
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
