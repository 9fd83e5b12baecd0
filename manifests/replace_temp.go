package manifests

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// The name of a temp tells Sweep what to do with it after a crash:
//
//	.STEM.leasehold-tmp-new-RANDOM         being written, never in the place
//	.STEM.leasehold-tmp-OLD-NEXT-RANDOM    next before the swap, old after it; OLD and NEXT are
//	                                       digests of the bytes, so a third content is a user's
//	.STEM.leasehold-saved-RANDOM           a save that two others overtook, kept for the user
//
// STEM is the file's name where the temp lies beside it, and its escaped path in the directory for
// temps.
const (
	tempMark  = ".leasehold-tmp-"
	savedMark = ".leasehold-saved-"
	maxStem   = 180 // 255 less the dot and the longest ending
)

func swapName(stem string, old, next []byte) string {
	return "." + stem + tempMark + shortSum(old) + "-" + shortSum(next) + "-" + randomName()
}

func newName(stem string) string { return "." + stem + tempMark + "new-" + randomName() }

func savedName(name string) string { return "." + shortName(name) + savedMark + randomName() }

func shortSum(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

func randomName() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// shortName makes room for the ending. The digest keeps two long names apart.
func shortName(name string) string {
	if len(name) <= maxStem {
		return name
	}
	return name[:maxStem-17] + "~" + shortSum([]byte(name))
}

func escapePath(path string) string { return strings.ReplaceAll(url.PathEscape(path), "~", "%7E") }

func (s *swap) stem() string {
	if s.dir == s.t.temp {
		return escapePath(s.at.path)
	}
	return shortName(s.at.name)
}

// createTemp makes the temp in the directory for temps if that is on the file's file system, else
// beside the file.
func (s *swap) createTemp(perm uint32) (*file, error) {
	if err := s.t.before("temp", s.path); err != nil {
		return nil, err
	}
	s.pickTempDir()
	name := newName(s.stem())
	f, err := s.dir.create(name, perm)
	if err != nil && s.dir != s.at.dir {
		s.dir.close()
		s.dir = s.at.dir.hold()
		name = newName(s.stem())
		f, err = s.dir.create(name, perm)
	}
	if err != nil {
		return nil, fmt.Errorf("making a temporary file: %w", err)
	}
	s.temp = name
	return f, nil
}

// pickTempDir chooses the directory of the temp.
func (s *swap) pickTempDir() {
	s.dir = s.at.dir.hold()
	if d := s.t.temp; d != nil && len(escapePath(s.at.path)) <= maxStem {
		here, err1 := s.at.dir.identity()
		there, err2 := d.identity()
		if err1 == nil && err2 == nil && here.Dev == there.Dev {
			s.dir.close()
			s.dir = d.hold()
		}
	}
}

func (s *swap) renameTemp(name string) error {
	if err := s.dir.rename(s.temp, s.dir, name); err != nil {
		return err
	}
	s.temp = name
	return nil
}

// ownerError says whose the file is.
type ownerError struct {
	uid, gid uint32
	err      error
}

func (e *ownerError) Error() string {
	return fmt.Sprintf("it belongs to uid %d, gid %d, which cannot be kept: %v", e.uid, e.gid, e.err)
}

func (e *ownerError) Unwrap() error { return e.err }

// Create makes a new file with these bytes, whole or not at all. Errors: fs.ErrExist if there is
// something at path, even a link that leads nowhere; fs.ErrNotExist if its directory is missing;
// ErrNotWritable; ErrOutside.
func (t *Tree) Create(path string, data []byte) error {
	parent, name := splitPath(path)
	d, err := t.openDir(parent)
	if err != nil {
		return t.explain(path, place{}, err)
	}
	s := &swap{t: t, path: path, at: place{dir: d, name: name, path: path}}
	err = s.create(data)
	s.end()
	if err == nil {
		return nil
	}
	if isDenied(err) {
		err = fmt.Errorf("%w: %w", ErrNotWritable, err)
	}
	return fmt.Errorf("%s: %w", path, err)
}

func (s *swap) create(data []byte) error {
	w, err := s.createTemp(0o644)
	if err != nil {
		return err
	}
	w.mark()
	err = errors.Join(s.fill(w, data, false), w.close())
	if err != nil {
		return err
	}
	if err := s.t.before("rename", s.path); err != nil {
		return err
	}
	if err := s.dir.renameNew(s.temp, s.at.dir, s.at.name); err != nil {
		return err
	}
	s.temp = ""
	if err := s.t.before("syncdir", s.path); err != nil {
		return err
	}
	return s.at.dir.sync()
}
