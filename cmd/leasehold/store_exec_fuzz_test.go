package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"leasehold.dev/leasehold/store/sqlite"
)

// FuzzExec holds store exec to one answer per line, each a line of JSON, whatever the bytes, and to
// a bound on its memory. The store stays as its own check wants it.
func FuzzExec(f *testing.F) {
	for _, s := range []string{
		`{"op":"enqueue","id":"j"}` + "\n" + `{"op":"claim","id":"j","owner":"a","now":0,"ttl":10}` + "\n" +
			`{"op":"renew","id":"j","owner":"a","fence":1,"now":5,"ttl":10}` + "\n" + `{"op":"state","id":"j"}` + "\n" +
			`{"op":"complete","id":"j","owner":"a","fence":1,"now":6,"result":"<&>\u2028"}` + "\n" + `{"op":"release","id":"j","owner":"a","fence":1}`,
		`{"op":"enqueue","id":"j"}` + "\r\n" + `{"op":"claim-many","id":"j","owners":["a","b"],"now":-1e300,"ttl":1e308}` + "\n\n \nnull\n[]\n7\n{}",
		`{"op":"enqueue","id":"\ud800"}` + "\n" + `{"op":"enqueue","id":"\\ud800"}` + "\n\x00\n\xff\xfe\n" + `{"op":"enqueue","op":"state","id":"j"}`,
		`{"op":"claim","id":"j","owner":"a","now":1e999,"ttl":1}` + "\n" + `{"op":"renew","id":"j","owner":"a","fence":9223372036854775808,"now":1,"ttl":1}` + "\n" +
			`{"op":"renew","id":"j","owner":"a","fence":1.0,"now":1,"ttl":1}` + "\n" + `{"OP":"enqueue","ID":"j"}`,
		`{"op":"claim-many","id":"j","owners":[],"now":0,"ttl":1}` + "\n" + `{"op":"claim-many","id":"j","owners":[["a"]],"now":0,"ttl":1}` + "\n" + `{"op":"claim-many","id":"j","owners":[1`,
		strings.Repeat("[", 500) + "\n" + strings.Repeat(`{"op":`, 300) + "\n" + `{"op":"enqueue","id":"` + strings.Repeat("x", 700) + `"}`,
	} {
		f.Add([]byte(s))
	}
	path := filepath.Join(f.TempDir(), "jobs.db")
	db, err := sqlite.Open(f.Context(), path, sqlite.Options{HistoryLimit: 1000})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { db.Close() })
	runs := 0
	f.Fuzz(func(t *testing.T, in []byte) {
		var out bytes.Buffer
		var before, after runtime.MemStats
		if runs++; runs%64 == 1 {
			runtime.GC()
		}
		runtime.ReadMemStats(&before)
		if err := execStream(t.Context(), db, bytes.NewReader(in), &out); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		lines := bytes.Count(in, []byte("\n"))
		if len(in) > 0 && in[len(in)-1] != '\n' {
			lines++
		}
		// What is allocated in all bounds what is held at once.
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(4<<20+400*len(in)+40_000*lines) {
			t.Errorf("%d bytes of memory for %d lines of %d bytes", used, lines, len(in))
		}
		answers := bufio.NewScanner(&out)
		answers.Buffer(nil, execLineMax)
		n := 0
		for ; answers.Scan(); n++ {
			var a any
			if err := json.Unmarshal(answers.Bytes(), &a); err != nil {
				t.Errorf("answer %d is no JSON: %q", n+1, answers.Text())
			}
			if m, ok := a.(map[string]any); ok && m["error"] != nil && strings.Contains(m["error"].(string), "SQL") {
				t.Errorf("answer %d: %s", n+1, answers.Text())
			}
		}
		if n != lines || answers.Err() != nil {
			t.Errorf("%d answers to %d lines: %v", n, lines, answers.Err())
		}
		if runs%500 == 0 {
			report, err := sqlite.Check(t.Context(), path, nil)
			if err != nil || len(report.Problems) > 0 {
				t.Errorf("the store afterwards: %v, %q", err, report.Problems)
			}
		}
	})
}
