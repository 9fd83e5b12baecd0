package controller

import (
	"log/slog"
	"time"
)

// leap is by how much the system clock may move against the timers before leases are looked at anew.
const leap = time.Second

// reading is the system clock as of a pass that is to be followed by another at a reading of it.
type reading struct {
	at    float64
	times int // how often in a row it was the same
}

// jumped looks again at every job that waits for a reading of the system clock: it may be over.
func (c *Controller) jumped() {
	c.mu.Lock()
	keys := make([]string, 0, len(c.timed))
	for k := range c.timed {
		keys = append(keys, k)
	}
	c.mu.Unlock()
	c.opt.Log.Debug("the system clock was set, or the machine slept", slog.Int("manifests", len(keys)))
	c.enqueue(keys...)
}

// notice compares the system clock with the timers' where something happens anyway, for systems on
// which nobody tells when it is set.
func (c *Controller) notice() {
	now := c.opt.Now().Round(0).Sub(c.wall) // without the reading that time.Time carries beside it
	ahead := now - time.Since(c.began)
	c.mu.Lock()
	was := c.ahead
	moved := ahead-was > leap || was-ahead > leap
	if moved {
		c.ahead = ahead
	}
	c.mu.Unlock()
	if moved {
		c.jumped()
	}
}

// restOf is how long to wait before the next pass over a key. A clock that stands still would never
// reach what a job waits for: then the waits double, up to a second.
func (c *Controller) restOf(key string, p pass) time.Duration {
	rest := max(p.after, time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !p.timed {
		delete(c.timed, key)
		return rest
	}
	r := c.timed[key]
	if r.times++; r.at != p.reading {
		r = reading{at: p.reading}
	}
	c.timed[key] = r
	return max(rest, min(time.Millisecond<<min(r.times, 10), time.Second))
}
