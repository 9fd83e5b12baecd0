package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"leasehold.dev/leasehold/store/sqlite"
	"leasehold.dev/leasehold/store/storetest"
)

// Thousands of random lines, some in one burst and some one by one, are answered as the model says.
func TestExecAgainstModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	rapid.Check(t, func(rt *rapid.T) {
		prefix := storetest.Prefix()
		jobs := map[string]storetest.Job{}
		var in strings.Builder
		var ops []storetest.Op
		var want []any
		for _, op := range rapid.SliceOfN(storetest.Ops(prefix), 1, 150).Draw(rt, "ops") {
			if strings.ContainsAny(fmt.Sprint(op.Now, op.TTL), "IN") {
				continue // JSON has no such numbers
			}
			if j := jobs[op.ID]; op.Fence >= 0 && op.Fence <= 4 {
				op.Fence = j.Fence - op.Fence/4
			}
			var a storetest.Answer
			jobs[op.ID], a = storetest.Step(jobs[op.ID], op)
			ops, want = append(ops, op), append(want, answerJSON(op, a))
			in.Write(lineJSON(op))
			in.WriteByte('\n')
		}
		var out, errs bytes.Buffer
		code := run(t.Context(), []string{"store", "exec", "--store", path}, streams{chunks(rt, in.String()), &out, &errs})
		if code != 0 || errs.Len() > 0 {
			rt.Fatalf("exit code %d: %s", code, errs.String())
		}
		lines := bufio.NewScanner(&out)
		for i, op := range ops {
			if !lines.Scan() {
				rt.Fatalf("%d answers to %d lines", i, len(ops))
			}
			var got map[string]any
			d := json.NewDecoder(bytes.NewReader(lines.Bytes()))
			d.UseNumber()
			if err := d.Decode(&got); err != nil {
				rt.Fatal(err)
			}
			if _, failed := got["error"]; failed {
				got = map[string]any{"error": true}
			}
			gotText, wantText := canonical(got), canonical(want[i])
			if diff := cmp.Diff(wantText, gotText); diff != "" {
				rt.Fatalf("line %d, %v: the model (-) and store exec (+) differ:\n%s", i, op, diff)
			}
		}
		if lines.Scan() {
			rt.Fatalf("one answer too many: %s", lines.Text())
		}
	})
}

// chunks hands text over in pieces, as a pipe would.
func chunks(rt *rapid.T, text string) io.Reader {
	r, w := io.Pipe()
	sizes := rapid.SliceOfN(rapid.IntRange(1, 2000), 1, 20).Draw(rt, "chunks")
	go func() {
		for i := 0; text != ""; i++ {
			n := min(sizes[i%len(sizes)], len(text))
			io.WriteString(w, text[:n])
			text = text[n:]
		}
		w.Close()
	}()
	return r
}

func canonical(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func lineJSON(op storetest.Op) []byte {
	m := map[string]any{"op": op.Name, "id": op.ID}
	switch op.Name {
	case "claim":
		m["owner"], m["now"], m["ttl"] = op.Owner, op.Now, op.TTL
	case "renew":
		m["owner"], m["fence"], m["now"], m["ttl"] = op.Owner, op.Fence, op.Now, op.TTL
	case "complete":
		m["owner"], m["fence"], m["now"], m["result"] = op.Owner, op.Fence, op.Now, op.Result
	case "release":
		m["owner"], m["fence"] = op.Owner, op.Fence
	}
	b, _ := json.Marshal(m)
	return b
}

// answerJSON is what the contract's table of commands says of a model's answer.
func answerJSON(op storetest.Op, a storetest.Answer) any {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	switch {
	case a.Failed != "":
		return map[string]any{"error": true}
	case op.Name == "enqueue":
		return map[string]any{"created": a.Created}
	case op.Name == "state":
		if !a.Job.Exists {
			return map[string]any(nil)
		}
		row := map[string]any{"id": op.ID, "owner": null(a.Job.Owner), "until": a.Job.Until, "fence": a.Job.Fence, "result": nil, "done": a.Job.Done}
		if a.Job.HasResult {
			row["result"] = a.Job.Result
		}
		return row
	case a.Reason == "" && op.Name == "claim":
		return map[string]any{"fence": a.Fence}
	case a.Reason == "":
		return map[string]any{"ok": true}
	}
	m := map[string]any{"reason": string(a.Reason), "owner": null(a.Owner), "until": a.Until, "currentFence": a.Fence}
	if a.Reason == "NotFound" {
		m["until"], m["currentFence"] = nil, nil
	}
	if op.Name == "claim" {
		m["fence"] = nil
	} else {
		m["ok"] = false
	}
	return m
}

// An answer comes when its line has been decided, though the next one has not begun to arrive.
func TestExecAnswersAtOnce(t *testing.T) {
	db := openTestStore(t)
	in, send := io.Pipe()
	receive, out := io.Pipe()
	ended := make(chan error)
	go func() { ended <- execStream(t.Context(), db, in, out) }()
	answers := bufio.NewScanner(receive)
	for i := range 20 {
		fmt.Fprintf(send, "{\"op\":\"enqueue\",\"id\":\"j%d\"}\n", i)
		if !answers.Scan() || answers.Text() != `{"created":true}` {
			t.Fatalf("%q, %v", answers.Text(), answers.Err())
		}
	}
	send.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestExecLineTooLong(t *testing.T) {
	db := openTestStore(t)
	result := strings.Repeat("x", execLineMax)
	var out bytes.Buffer
	in := `{"op":"enqueue","id":"j"}` + "\n" + `{"op":"enqueue","id":"` + result + `"}` + "\n" + `{"op":"enqueue","id":"j"}` + "\n" + result + "x"
	if err := execStream(t.Context(), db, strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	want := `{"created":true}
{"error":"the line is longer than 4194304 bytes"}
{"created":false}
{"error":"the line is longer than 4194304 bytes"}
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

// One row outside the contract's domain fails alone, in the middle of a batch.
func TestExecBadRow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	var in, out, errs bytes.Buffer
	for i := range 9 {
		fmt.Fprintf(&in, "{\"op\":\"enqueue\",\"id\":\"j%d\"}\n", i)
	}
	if code := run(t.Context(), []string{"store", "exec", "--store", path}, streams{&in, &out, &errs}); code != 0 {
		t.Fatal(errs.String())
	}
	foreignExec(t, path, "UPDATE jobs SET until = 9e999 WHERE id = 'j4'")
	out.Reset()
	for i := range 9 {
		fmt.Fprintf(&in, "{\"op\":\"claim\",\"id\":\"j%d\",\"owner\":\"a\",\"now\":0,\"ttl\":1}\n", i)
	}
	if code := run(t.Context(), []string{"store", "exec", "--store", path}, streams{&in, &out, &errs}); code != 0 {
		t.Fatal(errs.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i, l := range lines {
		if want := `{"fence":1}`; i != 4 && l != want || i == 4 && !strings.Contains(l, "until is not finite") {
			t.Errorf("line %d: %s", i, l)
		}
	}
	if len(lines) != 9 {
		t.Errorf("%d answers", len(lines))
	}
}

// Somebody who stops reading ends it without a word.
func TestExecOutputClosed(t *testing.T) {
	for _, broken := range []error{syscall.EPIPE, io.ErrClosedPipe} {
		var errs bytes.Buffer
		in := strings.NewReader(strings.Repeat(`{"op":"enqueue","id":"j"}`+"\n", 1000))
		code := run(t.Context(), []string{"store", "exec", "--store", filepath.Join(t.TempDir(), "jobs.db")}, streams{in, failing{broken}, &errs})
		if code != 0 || errs.Len() > 0 {
			t.Errorf("exit code %d: %s", code, errs.String())
		}
	}
}

// A database that is gone is told for the line that met it, and ends the stream.
func TestExecLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs.db")
	in, send := io.Pipe()
	receive, out := io.Pipe()
	var errs bytes.Buffer
	code := make(chan int)
	go func() {
		code <- run(t.Context(), []string{"store", "exec", "--store", path}, streams{in, out, &errs})
		out.Close()
	}()
	answers := bufio.NewScanner(receive)
	io.WriteString(send, `{"op":"enqueue","id":"j"}`+"\n")
	if !answers.Scan() || answers.Text() != `{"created":true}` {
		t.Fatal(answers.Text())
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	io.WriteString(send, `{"op":"claim","id":"j","owner":"a","now":0,"ttl":1}`+"\n")
	if !answers.Scan() || !strings.Contains(answers.Text(), `{"error":"the database file was deleted`) {
		t.Error(answers.Text())
	}
	if c := <-code; c != exitFault || !strings.Contains(errs.String(), "restart") {
		t.Error(c, errs.String())
	}
}

func TestHalfSurrogates(t *testing.T) {
	for text, want := range map[string]bool{
		`{"id":"\ud83d\ude00"}`: false, `{"id":"\uD800"}`: true, `{"id":"\ude00\ud83d"}`: true, `{"id":"\ud83dx"}`: true,
		`{"id":"\\ud800"}`: false, `{"id":"\\\ud800"}`: true, `{"id":"\u0041\ufffd"}`: false, `\ud8`: false, `\`: false,
		`{"id":"\ud83d\ude00\ud83d"}`: true,
	} {
		if got := halfSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

func TestExecInputFails(t *testing.T) {
	db := openTestStore(t)
	var out bytes.Buffer
	want := errors.New("unplugged")
	in := io.MultiReader(strings.NewReader(`{"op":"enqueue","id":"j"}`+"\n"+`{"op":`), failing{want})
	if err := execStream(t.Context(), db, in, &out); !errors.Is(err, want) || out.String() != "{\"created\":true}\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}

func TestExecInterrupted(t *testing.T) {
	db := openTestStore(t)
	ctx, cancel := context.WithCancel(t.Context())
	in, send := io.Pipe()
	defer send.Close()
	cancel()
	if err := execStream(ctx, db, in, io.Discard); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// failing fails at once.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error)  { return 0, f.err }
func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestNumbersOfFlags(t *testing.T) {
	for text, want := range map[string]float64{
		"0": 0, "1.5": 1.5, "-2": -2, "+3": 3, ".5": 0.5, "5.": 5, "1e3": 1000, "0.1": 0.1, "9007199254740993": 9007199254740992,
		"NaN": math.NaN(), "nan": math.NaN(), "Inf": math.NaN(), "-inf": math.NaN(), "infinity": math.NaN(), "1e999": math.NaN(),
		"0x10": math.NaN(), "1_000": math.NaN(), "": math.NaN(), " 1": math.NaN(), "1 ": math.NaN(), "1,5": math.NaN(), ".": math.NaN(), "e5": math.NaN(),
	} {
		var f numberFlag
		if err := f.Set(text); (err != nil) != math.IsNaN(want) || err == nil && float64(f) != want {
			t.Errorf("%q: %v, %v", text, f, err)
		}
	}
}

func openTestStore(t *testing.T) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "jobs.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// foreignExec runs a statement as a program would that knows nothing of us.
func foreignExec(t *testing.T, path, text string) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
}
