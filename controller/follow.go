package controller

import (
	"context"

	"leasehold.dev/leasehold/manifests"
)

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
		for range w.Changes() {
			select {
			case signals <- struct{}{}:
			default:
			}
		}
	}()
	return signals
}
