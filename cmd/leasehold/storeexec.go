package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

const (
	execLines   = 256     // decided together at most
	execLineMax = 4 << 20 // bytes
)

func (sc *storeCommands) exec() *cobra.Command {
	return sc.command(&cobra.Command{
		Use:   "exec",
		Short: "Carry out operations from standard input, one JSON object a line",
		Long: `Reads one JSON object a line and answers each with one line, in order, with the objects that the
single commands print. An invalid line or argument is answered with {"error":"..."} and the stream
goes on. Lines that have already arrived are decided together; each answer follows its commit.

  {"op":"enqueue","id":"j"}                                              {"created":true}
  {"op":"state","id":"j"}                                                the row, or null
  {"op":"claim","id":"j","owner":"a","now":0,"ttl":10}                   {"fence":1}
  {"op":"renew","id":"j","owner":"a","fence":1,"now":5,"ttl":10}         {"ok":true}
  {"op":"complete","id":"j","owner":"a","fence":1,"now":6,"result":"r"}  {"ok":true}
  {"op":"release","id":"j","owner":"a","fence":1}                        {"ok":true}
  {"op":"claim-many","id":"j","owners":["a","b"],"now":0,"ttl":10}       {"fences":[1,null]}`,
		Example: `  echo '{"op":"claim","id":"invoice-42","owner":"a","now":0,"ttl":10}' | leasehold store exec`,
	}, cobra.NoArgs, false, func(ctx context.Context, db *sqlite.DB, _ []string) error {
		return execStream(ctx, db, sc.In, sc.Out)
	})
}

// execStream answers the lines of in until it ends.
func execStream(ctx context.Context, db *sqlite.DB, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := make(chan *line, 2*execLines)
	var readErr error
	go func() {
		defer close(lines)
		readErr = readLines(ctx, in, lines)
	}()
	w := bufio.NewWriterSize(out, 64<<10)
	for {
		var batch []*line
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l, ok := <-lines:
			if !ok {
				return readErr
			}
			batch = append(batch, l)
		}
		for len(batch) < execLines && len(lines) > 0 {
			batch = append(batch, <-lines)
		}
		err := execBatch(ctx, db, batch)
		for _, l := range batch {
			if l.answer == nil {
				break // only after a fault that ends the stream
			}
			if err := printJSON(w, l.answer); err != nil {
				return err
			}
		}
		flushed := w.Flush()
		if err != nil {
			return err
		}
		if flushed != nil {
			return flushed
		}
	}
}

// readLines parses the lines of in. A line that is too long is answered, and skipped to its end.
func readLines(ctx context.Context, in io.Reader, lines chan<- *line) error {
	r := bufio.NewReaderSize(in, 64<<10)
	for {
		var text []byte
		long, end := false, false
		for {
			part, err := r.ReadSlice('\n')
			if len(text)+len(part) > execLineMax {
				long, text = true, nil
			}
			if !long {
				text = append(text, part...)
			}
			if err == bufio.ErrBufferFull {
				continue
			}
			if err != nil && err != io.EOF {
				return fmt.Errorf("standard input: %w", err)
			}
			end = err == io.EOF
			break
		}
		if end && len(text) == 0 && !long {
			return nil
		}
		l := &line{err: fmt.Errorf("the line is longer than %d bytes", execLineMax)}
		if !long {
			l = parseLine(text)
		}
		select {
		case lines <- l:
		case <-ctx.Done():
			return nil
		}
		if end {
			return nil
		}
	}
}

// execBatch answers lines in order. An error ends the stream; lines without an answer were not
// decided.
func execBatch(ctx context.Context, db *sqlite.DB, batch []*line) error {
	for len(batch) > 0 {
		n := 0
		for n < len(batch) && batch[n].op != "claim-many" {
			n++
		}
		if err := execTogether(ctx, db, batch[:n]); err != nil {
			return err
		}
		if batch = batch[n:]; len(batch) > 0 {
			l := batch[0]
			vs, err := db.ClaimMany(ctx, l.id, l.owners, l.now, l.ttl)
			if l.answer = fencesAnswer(vs); err != nil {
				if l.answer = (errorAnswer{err.Error()}); ends(err) {
					return err
				}
			}
			batch = batch[1:]
		}
	}
	return nil
}

// execTogether decides lines in one commit, or one by one where that is not possible.
func execTogether(ctx context.Context, db *sqlite.DB, batch []*line) error {
	if len(batch) == 0 {
		return nil
	}
	index := map[string]int{}
	var ids []string
	for _, l := range batch {
		if l.err == nil && l.id == "" {
			l.err = fmt.Errorf("%w: id: must not be empty", store.ErrInvalid)
		}
		if l.err != nil {
			l.answer = errorAnswer{l.err.Error()}
			continue
		}
		if _, ok := index[l.id]; !ok {
			index[l.id] = len(ids)
			ids = append(ids, l.id)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := db.Update(ctx, ids, func(rs []*store.Record) error {
		for _, l := range batch {
			if l.err == nil {
				l.decide(rs[index[l.id]])
			}
		}
		return nil
	})
	if err == nil {
		return nil
	}
	if ends(err) {
		for _, l := range batch {
			if l.err == nil {
				l.answer = errorAnswer{err.Error()}
			}
		}
		return err
	}
	if len(ids) > 1 {
		for i := range batch {
			if batch[i].err == nil {
				if err := execTogether(ctx, db, batch[i:i+1]); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, l := range batch {
		if l.err == nil {
			l.answer = errorAnswer{err.Error()}
		}
	}
	return nil
}

// ends reports whether no later line can be answered either.
func ends(err error) bool {
	return errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrClosed) || errors.Is(err, context.Canceled)
}

// decide carries l out on its job's record. It may be called again.
func (l *line) decide(r *store.Record) {
	var v store.Verdict
	var err error
	switch l.op {
	case "enqueue":
		l.answer = createdAnswer{r.Enqueue()}
		return
	case "state":
		l.answer = stateAnswer(r.Row, r.Exists)
		return
	case "claim":
		if v, err = r.Claim(l.owner, l.now, l.ttl); err == nil {
			l.answer = claimAnswer(v)
			return
		}
	case "renew":
		v, err = r.Renew(l.owner, l.fence, l.now, l.ttl)
	case "complete":
		v, err = r.Complete(l.owner, l.fence, l.now, l.result)
	case "release":
		v, err = r.Release(l.owner, l.fence)
	}
	if l.answer = okAnswer(v); err != nil {
		l.answer = errorAnswer{err.Error()}
	}
}
