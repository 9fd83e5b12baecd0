package controller

import (
	"context"
	"time"

	"leasehold.dev/leasehold/manifests"
)

// echoes are how long after an event to signal again. SQLite shows a commit to readers only once it
// is on the disk, which is after the last write that a watcher sees.
var echoes = []time.Duration{25 * time.Millisecond, 100 * time.Millisecond, 400 * time.Millisecond, 1600 * time.Millisecond}

// Follow signals that manifests of the tree, or the database (unless it is ""), may have changed,
// until ctx is done. The first signal comes at once; those that nobody has taken yet are one.
func Follow(ctx context.Context, tree *manifests.Tree, database string) <-chan struct{} {
	w := newWatcher(tree)
	if database != "" {
		w.Also(database)
	}
	signals := make(chan struct{}, 1)
	signals <- struct{}{}
	go w.Run(ctx)
	go func() {
		echo := time.NewTimer(echoes[0])
		defer echo.Stop()
		next := 0 // of echoes
		for changes := w.Changes(); ; {
			select {
			case c, ok := <-changes:
				if !ok {
					return
				}
				if c.Also {
					next = 0
				}
			case <-echo.C:
				next++
			}
			if next < len(echoes) {
				echo.Reset(echoes[next])
			}
			select {
			case signals <- struct{}{}:
			default:
			}
		}
	}()
	return signals
}
