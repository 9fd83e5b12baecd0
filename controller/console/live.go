package console

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	mostStreams = 200                    // open at once
	streamRest  = 150 * time.Millisecond // between two messages
	streamPulse = 20 * time.Second       // a sign of life, so that a dead connection is noticed
	streamWrite = 10 * time.Second       // for a reader to take a message
)

var errStreams = errors.New("too many pages are open")

// live sends the part of a page that changes, whenever it has changed, as server-sent events.
func (c *Console) live(name string, v view) http.HandlerFunc {
	var open atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		defer open.Add(-1)
		if open.Add(1) > mostStreams {
			c.fail(w, errStreams)
			return
		}
		defer c.hub.use()()
		out := http.NewResponseController(w)
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Accel-Buffering", "no")
		send := func(message []byte) error {
			_ = out.SetWriteDeadline(time.Now().Add(streamWrite))
			if _, err := w.Write(message); err != nil {
				return err
			}
			return out.Flush()
		}
		if r.Method == http.MethodHead || send([]byte("retry: 1000\n\n")) != nil {
			return
		}
		var last []byte
		rest := time.NewTimer(0)
		defer rest.Stop()
		pulse := time.NewTicker(streamPulse)
		defer pulse.Stop()
		for {
			s, changed, err := c.hub.current(r.Context())
			if err != nil {
				_ = send(event("fault", []byte(err.Error())))
				return
			}
			text, _, err := c.renderFrom(r, s, name, v)
			switch {
			case errors.Is(err, errNotFound):
				text = []byte(`<p class="fault" role="alert">The job is not there any more.</p>`)
			case err != nil:
				_ = send(event("fault", []byte(err.Error())))
				return
			}
			if last == nil || !bytes.Equal(text, last) {
				last = text
				if send(event("part", text)) != nil {
					return
				}
			}
			rest.Reset(streamRest)
			select {
			case <-rest.C:
			case <-r.Context().Done():
				return
			}
			for waiting := true; waiting; {
				select {
				case <-changed:
					waiting = false
				case <-pulse.C:
					if send([]byte(": alive\n\n")) != nil {
						return
					}
				case <-r.Context().Done():
					return
				case <-c.hub.ctx.Done():
					return
				}
			}
		}
	}
}

// event is a message of a stream.
func event(name string, data []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "event: %s\n", name)
	// A carriage return alone would end the line, too.
	data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		b.WriteString("data: ")
		b.Write(line)
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	return b.Bytes()
}
