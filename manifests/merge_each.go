package manifests

import (
	"bytes"
	"errors"
	"slices"
)

// EditEach changes several documents of a file, one after the other; each costs no more than the part
// of the file in which it stands. edit gets that part as a file of its own with the document's index
// in it, and returns the part's new bytes, as Set, MergeSpec and Remove do; none remove the part. The
// documents for which edit fails stay as they are, and have their errors in failed. The last result
// is about the whole: nothing is changed then, and the documents may be tried one by one.
func (f *File) EditEach(data []byte, docs []int, edit func(part *File, text []byte, doc int) ([]byte, error)) (next []byte, failed map[int]error, err error) {
	if !f.same(data) {
		return nil, nil, ErrOtherBytes
	}
	docs = slices.Clone(docs)
	slices.Sort(docs)
	failed = map[int]error{}
	touched := map[int]bool{}
	gone := 0
	pos := 0
	for len(docs) > 0 {
		if docs[0] < 0 || docs[0] >= len(f.Docs) {
			return nil, nil, f.fail(change{doc: docs[0]}, "there is no such document")
		}
		s := f.Docs[docs[0]].from.span
		n := 1
		for n < len(docs) && docs[n] < len(f.Docs) && f.Docs[docs[n]].from.span == s {
			n++
		}
		text := data[s.lo:s.hi]
		part := Decode(f.Path, text)
		there := len(part.Docs)
		for _, doc := range slices.Backward(docs[:n]) { // an index does not change by what happens behind it
			nth := f.Docs[doc].from.nth
			if nth >= len(part.Docs) || !sameDoc(part.Docs[nth], f.Docs[doc]) {
				return nil, nil, f.fail(change{doc: doc}, "cannot be changed by itself")
			}
			after, err := edit(part, text, nth)
			if err != nil {
				var e *EditError
				if errors.As(err, &e) {
					e.Doc, e.Line = doc, e.Line+s.line-1
				}
				failed[doc] = err
				continue
			}
			touched[doc] = true
			if bytes.Equal(after, text) {
				continue
			}
			text, part = after, Decode(f.Path, after)
		}
		gone += there - len(part.Docs)
		if !bytes.Equal(text, data[s.lo:s.hi]) {
			next = append(append(next, data[pos:s.lo]...), text...)
			pos = s.hi
			if len(text) == 0 && isMarker(data[s.hi:], "...") {
				// Its end goes with it, unless that is all that parts its neighbours.
				if end := lineEnd(data, s.hi); end >= len(data) || isMarker(data[end:], "---") {
					pos = end
				}
			}
		}
		docs = docs[n:]
	}
	if pos == 0 {
		return data, failed, nil
	}
	next = append(next, data[pos:]...)
	if len(next) > MaxFileSize {
		return nil, nil, f.fail(change{doc: -1}, "the file would become too large")
	}
	if !f.agrees(Decode(f.Path, next), touched, gone) {
		return nil, nil, f.fail(change{doc: -1}, "cannot be changed without changing something else")
	}
	if nothing(next) {
		next = nil
	}
	return next, failed, nil
}

// agrees tells whether g has the documents of f, but for those that were touched, of which some are
// gone.
func (f *File) agrees(g *File, touched map[int]bool, gone int) bool {
	if len(g.Docs) != len(f.Docs)-gone || len(g.Errors) != len(f.Errors) || g.Skipped != f.Skipped {
		return false
	}
	k := 0
	for i, d := range f.Docs {
		switch {
		case k < len(g.Docs) && sameDoc(d, g.Docs[k]):
			k++
		case !touched[i]:
			return false
		case k < len(g.Docs) && g.Docs[k].ID == d.ID:
			k++
		default:
			gone--
		}
	}
	return k == len(g.Docs) && gone == 0
}
