package controller

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// ErrLocked says that another controller is at work.
var ErrLocked = errors.New("another controller is at work")

// Lock keeps every other controller away from the directory, and from the database, until it is
// closed or the process ends. The error of the second one is ErrLocked and says who is there.
type Lock struct {
	files []*os.File // the directory and the file beside the database
	held  bool
}

// Acquire locks dir itself and a file beside the database.
func Acquire(dir, database string) (*Lock, error) {
	l := &Lock{}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	l.files = append(l.files, d)
	path := database + ".lock"
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		l.Close()
		return nil, err
	}
	l.files = append(l.files, f)
	if err := insist(d); err != nil {
		defer l.Close()
		return nil, locked("directory "+dir, err, f)
	}
	if err := insist(f); err != nil {
		defer l.Close()
		return nil, locked("database "+database, err, f)
	}
	l.held = true
	abs, err := filepath.Abs(dir)
	if err != nil {
		abs = dir
	}
	host, _ := os.Hostname()
	who := fmt.Sprintf("process %d on %s, in %s\n", os.Getpid(), host, abs)
	if err := f.Truncate(0); err == nil {
		_, err = f.WriteAt([]byte(who), 0)
		if err != nil {
			l.Close()
			return nil, err
		}
	}
	return l, nil
}

// insist tries for a moment: somebody who asks whether a controller is at work has the lock so long.
func insist(f *os.File) error {
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for range 20 {
		if err := flock(f); !errors.Is(err, errWouldBlock) {
			return err
		}
		<-retry.C
	}
	return flock(f)
}

func locked(what string, err error, f *os.File) error {
	if !errors.Is(err, errWouldBlock) {
		return fmt.Errorf("locking the %s: %w", what, err)
	}
	who := make([]byte, 300)
	n, _ := f.ReadAt(who, 0)
	if n > 0 && who[n-1] == '\n' {
		return fmt.Errorf("%s: %w: %s", what, ErrLocked, who[:n-1])
	}
	return fmt.Errorf("%s: %w", what, ErrLocked)
}

// Locked reports whether a controller is at work in dir.
func Locked(dir string) (bool, error) {
	d, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer d.Close()
	if err := flock(d); errors.Is(err, errWouldBlock) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	return false, nil
}

// Close lets the next one in.
func (l *Lock) Close() {
	if l.held {
		_ = l.files[1].Truncate(0) // nobody is there
	}
	for _, f := range l.files {
		f.Close()
	}
}

// TryLock takes an exclusive lock that ends when f is closed, by everybody who has inherited it. ok is
// false if somebody else has it.
func TryLock(f *os.File) (ok bool, err error) {
	switch err := flock(f); {
	case errors.Is(err, errWouldBlock):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return true, nil
}
