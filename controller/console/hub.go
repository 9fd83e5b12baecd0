package console

import (
	"context"
	"sync"
	"time"
)

// hub follows the source while somebody looks, and for a while after: an idle console costs nothing.
type hub struct {
	ctx    context.Context
	source Source

	mu      sync.Mutex
	users   int
	stop    context.CancelFunc // nil: nothing is followed
	idle    *time.Timer
	shown   *Snapshot
	err     error         // why following ended
	changed chan struct{} // closed when shown or err are others
}

// lingering is how long the source is followed after the last one has looked.
const lingering = 30 * time.Second

func newHub(ctx context.Context, src Source) *hub {
	return &hub{ctx: ctx, source: src, changed: make(chan struct{})}
}

// use keeps the source followed until release is called.
func (h *hub) use() (release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users++
	if h.idle != nil {
		h.idle.Stop()
		h.idle = nil
	}
	if h.stop == nil {
		h.follow()
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.users--; h.users == 0 {
			h.idle = time.AfterFunc(lingering, h.rest)
		}
	}
}

func (h *hub) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.users == 0 && h.stop != nil {
		h.stop()
	}
}

// follow begins to follow. h.mu is held.
func (h *hub) follow() {
	ctx, stop := context.WithCancel(h.ctx)
	h.stop, h.err = stop, nil
	go func() {
		err := h.source.Follow(ctx, func(s *Snapshot) {
			h.mu.Lock()
			defer h.mu.Unlock()
			for _, j := range s.Jobs {
				j.words = words(j)
			}
			h.shown = s
			h.signal()
		})
		h.mu.Lock()
		defer h.mu.Unlock()
		stop()
		h.stop, h.shown = nil, nil
		switch {
		case h.ctx.Err() != nil:
			h.err = h.ctx.Err()
		case h.users > 0 && err == nil: // somebody came as it was being stopped
			h.follow()
		default:
			h.err = err
		}
		h.signal()
	}()
}

func (h *hub) signal() {
	close(h.changed)
	h.changed = make(chan struct{})
}

// current returns what is known, once something is, and a channel that is closed when it may be
// otherwise.
func (h *hub) current(ctx context.Context) (*Snapshot, <-chan struct{}, error) {
	for {
		h.mu.Lock()
		s, err, changed := h.shown, h.err, h.changed
		h.mu.Unlock()
		if s != nil || err != nil {
			return s, changed, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-h.ctx.Done():
			return nil, nil, h.ctx.Err()
		}
	}
}
