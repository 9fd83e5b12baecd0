package gitindex

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
)

// An entry of Git's index, as gitformat-index(5) lays it out, begins with ten 32-bit numbers: ctime
// and mtime in two each, dev, ino, mode, uid, gid and size. They are followed by the name of the
// blob and the flags.
const (
	statSize   = 40
	offMtime   = 8
	offMode    = 24
	offSize    = 36
	regular    = 0o100000
	gitlink    = 0o160000
	typeMask   = 0o170000
	flagValid  = 0x8000 // assume-unchanged
	flagMore   = 0x4000 // two more bytes of flags follow
	stageMask  = 0x3000
	moreSkip   = 0x4000 // skip-worktree
	moreIntent = 0x2000 // intent-to-add
)

// entry is a regular file that Git tracks and compares with the work tree.
type entry struct {
	off  int    // of its numbers in the file
	blob string // name of the blob, raw
}

// image is an index file in memory. Only numbers of entries are changed in it, so that its layout
// and its extensions stay as Git wrote them.
type image struct {
	data    []byte
	entries map[string]entry // those that match, by path
	all     []int            // where the others begin, too; submodules are no files
	newHash func() hash.Hash
	unsound bool // index.skipHash: Git has left the checksum out
}

var errFormat = errors.New("the index is in a form that is not known here")

// errSplit is a part of an index only.
var errSplit = errors.New("the index is split (core.splitIndex); git update-index --no-split-index joins it")

// parseImage reads an index. Entries whose path is not wanted are left out, and so are those that
// are in conflict, only announced, or exempt from comparing.
func parseImage(data []byte, sha2 bool, want func(path []byte) bool) (*image, error) {
	m := &image{data: data, entries: map[string]entry{}, newHash: sha1.New}
	if sha2 {
		m.newHash = sha256.New
	}
	size := m.newHash().Size()
	if len(data) < 12+size || string(data[:4]) != "DIRC" {
		return nil, errFormat
	}
	body, sum := data[:len(data)-size], data[len(data)-size:]
	if m.unsound = len(bytes.Trim(sum, "\x00")) == 0; !m.unsound && !bytes.Equal(sum, m.checksum()) {
		return nil, errors.New("the index has a wrong checksum")
	}
	version := binary.BigEndian.Uint32(data[4:])
	if version < 2 || version > 4 {
		return nil, fmt.Errorf("%w: version %d", errFormat, version)
	}
	pos := 12
	var path []byte
	for range binary.BigEndian.Uint32(data[8:]) {
		off := pos
		pos += statSize + size
		if pos+4 > len(body) {
			return nil, errFormat
		}
		flags := binary.BigEndian.Uint16(body[pos:])
		pos += 2
		var more uint16
		if flags&flagMore != 0 {
			more = binary.BigEndian.Uint16(body[pos:])
			pos += 2
		}
		if version == 4 {
			drop, n := offsetVarint(body[pos:])
			if n == 0 || drop > len(path) {
				return nil, errFormat
			}
			pos += n
			path = path[:len(path)-drop]
		} else {
			path = path[:0]
		}
		end := bytes.IndexByte(body[pos:], 0)
		if end < 0 {
			return nil, errFormat
		}
		path = append(path, body[pos:pos+end]...)
		pos += end + 1
		if version < 4 {
			pos = off + (pos-off+7)/8*8
		}
		mode := binary.BigEndian.Uint32(body[off+offMode:])
		if mode&typeMask != gitlink {
			m.all = append(m.all, off)
		}
		if mode&typeMask == regular && flags&(stageMask|flagValid) == 0 && more&(moreSkip|moreIntent) == 0 && want(path) {
			m.entries[string(path)] = entry{off, string(body[off+statSize : off+statSize+size])}
		}
	}
	for pos < len(body) {
		if pos+8 > len(body) {
			return nil, errFormat
		}
		if string(body[pos:pos+4]) == "link" {
			return nil, errSplit
		}
		pos += 8 + int(binary.BigEndian.Uint32(body[pos+4:]))
	}
	if pos != len(body) {
		return nil, errFormat
	}
	return m, nil
}

// offsetVarint reads a number as version 4 and pack files write offsets.
func offsetVarint(b []byte) (v, n int) {
	for n < len(b) && n < 5 {
		c := b[n]
		n++
		v |= int(c & 0x7f)
		if c&0x80 == 0 {
			return v, n
		}
		v = (v + 1) << 7
	}
	return 0, 0
}

func (m *image) checksum() []byte {
	h := m.newHash()
	h.Write(m.data[:len(m.data)-h.Size()])
	return h.Sum(nil)
}

// stat returns what the index remembers of a file.
func (m *image) stat(e entry) stat {
	var s stat
	copy(s[:], m.data[e.off:])
	return s
}

func (m *image) setStat(e entry, s stat) { copy(m.data[e.off:], s[:]) }

// seal makes the checksum right again.
func (m *image) seal() {
	if !m.unsound {
		sum := m.checksum()
		copy(m.data[len(m.data)-len(sum):], sum)
	}
}

// blobName is the name that Git gives to a blob with these bytes, raw.
func (m *image) blobName(data []byte) string {
	h := m.newHash()
	fmt.Fprintf(h, "blob %d\x00", len(data))
	h.Write(data)
	return string(h.Sum(nil))
}

// stat is the ten numbers of an entry, as they stand in the index. The mode among them is Git's own
// and no file's: it is never changed.
type stat [statSize]byte

// vague tells an entry whose size is 0. Git itself writes that for a file whose timestamp cannot be
// relied on: whatever the file's size, it runs the filter and compares the bytes.
func (s stat) vague() bool { return binary.BigEndian.Uint32(s[offSize:]) == 0 }

func (s stat) blur() stat {
	binary.BigEndian.PutUint32(s[offSize:], 0)
	return s
}

// same compares without the mode.
func (s stat) same(o stat) bool {
	copy(o[offMode:offMode+4], s[offMode:])
	return s == o
}

// of gives the numbers of a file to the entry.
func (s stat) of(file stat) stat {
	copy(file[offMode:offMode+4], s[offMode:])
	return file
}
