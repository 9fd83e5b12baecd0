package controller

import (
	"errors"
	"log/slog"
	"strings"
	"syscall"
	"time"
)

// storeFault says that the store cannot decide. It concerns every manifest alike.
type storeFault struct{ err error }

func (f *storeFault) Error() string {
	return "the store decides nothing: " + f.err.Error() + "; trying again"
}
func (f *storeFault) Unwrap() error { return f.err }

// outage is a time in which the store cannot decide. What failed waits for one of them, the probe,
// to succeed: a thousand manifests that all try again would find out no sooner.
type outage struct {
	waiting map[string]bool
	probe   string
	tries   int
}

const outageRest = 2 * time.Second // between two tries, at most

// suffer lets a key whose pass ended in a storeFault wait.
func (c *Controller) suffer(key string, err error) {
	c.diary.episode(slog.LevelError, "store", err.Error(), err.Error())
	c.queue.Forget(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	o := &c.outage
	if o.waiting == nil {
		o.waiting = map[string]bool{}
	}
	o.waiting[key] = true
	if o.probe == "" {
		o.probe = key
	}
	if o.probe == key {
		c.queue.AddAfter(key, min(50*time.Millisecond<<min(o.tries, 10), outageRest))
		o.tries++
	}
}

// relieve notes that a key's pass had no storeFault; decided says that the store was asked. If that
// was the probe's, the others go on.
func (c *Controller) relieve(key string, decided bool) {
	c.mu.Lock()
	o := &c.outage
	if !o.waiting[key] {
		c.mu.Unlock()
		return
	}
	delete(o.waiting, key)
	over := len(o.waiting) == 0
	var keys []string
	if o.probe == key {
		o.probe = ""
		for k := range o.waiting {
			keys = append(keys, k)
		}
		if over = over || decided; !over {
			keys = keys[:1] // the next probe
			o.probe = keys[0]
		}
	}
	if over {
		*o = outage{}
	}
	c.mu.Unlock()
	if over && c.diary.over("store") {
		c.opt.Log.Info("the store decides again")
	}
	for _, k := range keys {
		c.queue.Add(k)
	}
}

// ofTheMachine returns the fault in err that is no manifest's own, however many of them find out, or 0.
func ofTheMachine(err error) syscall.Errno {
	for _, errno := range []syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.ENOMEM, syscall.EIO} {
		if errors.Is(err, errno) {
			return errno
		}
	}
	return 0
}

// fault tells of a pass over a key that failed, and queues the next one.
func (c *Controller) fault(key string, err error) {
	name := c.source.Name(key)
	text := strings.TrimPrefix(err.Error(), key+": ")
	c.queue.AddRateLimited(key)
	if errno := ofTheMachine(err); errno != 0 {
		c.diary.episode(slog.LevelWarn, "machine", errno.Error(), text+"; what else this concerns is tried again, too", slog.String("file", name))
		return
	}
	c.diary.state(slog.LevelWarn, key, text, slog.String("file", name))
}
