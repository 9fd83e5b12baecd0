package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrMixed says that a database and the -wal beside it are of different states of a store.
var ErrMixed = errors.New("the database and the -wal file beside it do not belong together")

// Verify looks at a store that nobody has open and that was not closed in order, so that there is a
// -wal to be taken in: if a copy was put back beside the -wal of another state, SQLite would make one
// of both without a word. It works on a copy, and changes nothing. Call it before Open, in a process
// that has the store not open. Errors: ErrMixed, ErrCorrupt, and those of Check.
func Verify(ctx context.Context, path string) error {
	abs, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	wal, err := os.Stat(abs + "-wal")
	if err != nil || wal.Size() == 0 || inUse(abs) {
		return nil
	}
	dir, err := os.MkdirTemp(filepath.Dir(abs), ".leasehold-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	both := filepath.Join(dir, "both.db")
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(abs+suffix, both+suffix); err != nil {
			return err
		}
	}
	if after, err := os.Stat(abs + "-wal"); err != nil || after.Size() != wal.Size() || !after.ModTime().Equal(wal.ModTime()) {
		return nil // somebody is at work on it
	}
	report, err := Check(ctx, both, nil)
	why := ""
	switch {
	case errors.Is(err, ErrCorrupt):
		why = "it cannot be read"
	case err != nil:
		return errors.New(strings.ReplaceAll(err.Error(), both, abs))
	}
	for _, p := range report.grave {
		why = p
	}
	if why == "" {
		return nil
	}
	return fmt.Errorf("%s: %w, or are damaged (%s). If you put a copy back, remove %[1]s-wal and %[1]s-shm, which are of the database before, and start again; "+
		"if not, put one back; without one, move all three files away: fences then go on above those in the manifests", abs, ErrMixed, why)
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
