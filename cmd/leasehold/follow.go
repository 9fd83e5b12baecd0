package main

import (
	"context"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// storeEvents signals that the database may have changed, until ctx is done. Signals that nobody
// has taken yet are one.
func storeEvents(ctx context.Context, database string) (<-chan struct{}, error) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(filepath.Dir(database)); err != nil {
		w.Close()
		return nil, err
	}
	signals := make(chan struct{}, 1)
	signals <- struct{}{} // what happened before
	go func() {
		defer w.Close()
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.Errors: // an overflow: something may have happened
			case ev := <-w.Events:
				if base := filepath.Base(ev.Name); base != filepath.Base(database) && base != filepath.Base(database)+"-wal" {
					continue
				}
			}
			select {
			case signals <- struct{}{}:
			default:
			}
		}
	}()
	return signals, nil
}
