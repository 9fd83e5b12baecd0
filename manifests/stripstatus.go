package manifests

import (
	"bytes"
	"errors"
	"hash/maphash"
	"regexp"
)

// StripStatus returns data without the status of any document of our group: what Git stores of a
// manifest. Every other byte stays, so that a file in which only status was written strips to what
// it was before, and one without a status strips to itself.
//
// A file that cannot be decoded, that has conflict markers, or that is none of ours is returned as
// it is. So is a status that cannot be removed without changing more, as one that is merged from
// elsewhere.
func StripStatus(path string, data []byte) []byte {
	// Escapes can spell the key otherwise; nearly no file has any.
	if !bytes.Contains(data, []byte("status")) && bytes.IndexByte(data, '\\') < 0 {
		return data
	}
	if len(data) > MaxFileSize || Conflicted(data) {
		return data
	}
	f := outline(path, data)
	drop := make(map[int]*JobStatus, len(f.Docs))
	for i := range f.Docs {
		drop[i] = nil
	}
	for range maxStubborn {
		out, err := f.EditStatus(data, drop)
		if err == nil {
			return out
		}
		var e *EditError
		if !errors.As(err, &e) {
			break
		}
		delete(drop, e.Doc) // the others can go
	}
	return data
}

// outline finds the documents of our group, as Decode does, and does not look into them.
func outline(path string, data []byte) *File {
	f := &File{Path: path, size: len(data), sum: maphash.Bytes(seed, data)}
	if wrongEncoding(data) != "" {
		return f
	}
	for _, s := range splitFile(data) {
		units, _ := parse(path, data, s)
		nth := 0
		for _, u := range units {
			docs, _ := u.docs()
			for range docs {
				f.Docs = append(f.Docs, &Doc{Line: u.line, from: origin{span: s, nth: nth}})
				nth++
			}
		}
		if len(f.Docs) > maxDocs {
			return &File{Path: path} // so many that nothing is ever written there
		}
	}
	return f
}

// maxStubborn bounds how often removing is tried without the documents that refused.
const maxStubborn = 20

var openConflict = regexp.MustCompile(`(?m)^(<<<<<<<|>>>>>>>)( |\r?$)`)

// Conflicted reports whether data has the markers of a merge conflict that is not resolved.
func Conflicted(data []byte) bool {
	return (bytes.Contains(data, []byte("<<<<<<<")) || bytes.Contains(data, []byte(">>>>>>>"))) && openConflict.Match(data)
}
