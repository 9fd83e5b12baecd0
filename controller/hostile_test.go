//go:build unix

package controller

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/leasehold/manifests"
)

// canary is a directory beside the manifests' that nobody may touch.
type canary struct {
	t    *testing.T
	dir  string
	text string
	was  map[string]os.FileInfo
}

func newCanary(t *testing.T) *canary {
	c := &canary{t: t, dir: t.TempDir(), text: manifest("elsewhere", 5), was: map[string]os.FileInfo{}}
	for _, name := range []string{"a.yaml", "secret"} {
		path := filepath.Join(c.dir, name)
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		c.was[name], _ = os.Stat(path)
	}
	return c
}

func (c *canary) untouched() {
	c.t.Helper()
	entries, err := os.ReadDir(c.dir)
	if err != nil || len(entries) != len(c.was) {
		c.t.Errorf("beside the manifests there are %v, %v", entries, err)
	}
	for name, was := range c.was {
		path := filepath.Join(c.dir, name)
		is, err := os.Stat(path)
		data, _ := os.ReadFile(path)
		if err != nil || string(data) != c.text || !os.SameFile(is, was) || is.Mode() != was.Mode() || !is.ModTime().Equal(was.ModTime()) {
			c.t.Errorf("%s was touched: %v\n%s", name, err, data)
		}
	}
}

var hostileTexts = map[string]string{
	"path":     "../../../etc/passwd",
	"absolute": "/etc/passwd",
	"markup":   "<script>alert(1)</script>&amp;<!--",
	"escape":   "\x1b]0;owned\x07\x1b[2J\u202etxt.exe\u009b31m",
	"sql":      "x'); DROP TABLE jobs; DELETE FROM leasehold_memory; --",
	"yaml":     "a: b\n---\nstatus: {done: true}\n# x",
	"template": "{{ .Name }} ${HOME} $(reboot) `reboot` %s%n%d",
	"nul":      "a\x00b",
	"long":     strings.Repeat("x", 1_000_000),
	"wide":     strings.Repeat("\U0001f980", 200_000),
}

// Whatever stands in names and values, it is a text: refused with a short line where only names may
// stand, and otherwise kept as it is. Its neighbours are leased, and nothing else happens.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	files := map[string]string{"a-good.yaml": manifest("a-good", 100), "z-good.yaml": manifest("z-good", 100)}
	n := 0
	for kind, text := range hostileTexts {
		q := fmt.Sprintf("%q", text)
		files["result-"+kind+".yaml"] = strings.Replace(manifest("result-"+kind, 100),
			"name: worker-a\n", "name: worker-a\n    complete: {fence: 1, result: "+q+"}\n", 1)
		files["name-"+kind+".yaml"] = manifest(q, 100)
		files["worker-"+kind+".yaml"] = strings.Replace(manifest("worker-"+kind, 100), "name: worker-a", "name: "+q, 1)
		files["data-"+kind+".yaml"] = strings.Replace(manifest("data-"+kind, 100), "  ttl: 30\n", "  ttl: 30\n  data: {k: "+q+"}\n", 1)
		files["note-"+kind+".yaml"] = strings.Replace(manifest("note-"+kind, 100), "metadata:\n", "metadata:\n  annotations: {k: "+q+"}\n", 1)
		files["namespace-"+kind+".yaml"] = strings.Replace(manifest("namespace-"+kind, 100), "metadata:\n", "metadata:\n  namespace: "+q+"\n", 1)
		files["field-"+kind+".yaml"] = strings.Replace(manifest("field-"+kind, 100), "  ttl: 30\n", "  ttl: 30\n  "+q+": 1\n", 1)
		n += 7
	}
	c := newCanary(t)
	r := newRig(t, files)
	before := map[string]string{}
	for name := range files {
		before[name] = string(manifests.StripStatus(name, []byte(r.read(name))))
	}
	begun := time.Now()
	sum := r.once()
	took := time.Since(begun)
	for _, good := range []string{"a-good", "z-good"} {
		r.shows(good+".yaml", "worker-a 1 130")
	}
	r.open()
	for kind, text := range hostileTexts {
		if rec := r.record("result-" + kind); rec.Done && *rec.Result != text {
			t.Errorf("%s: the result became %.80q", kind, *rec.Result)
		} else if s := r.status("result-" + kind + ".yaml"); rec.Done && *s.Result != text {
			t.Errorf("%s: status shows %.80q", kind, *s.Result)
		}
	}
	r.source.Close()
	r.db.Close()
	for name, was := range before {
		if got := string(manifests.StripStatus(name, []byte(r.read(name)))); got != was {
			t.Errorf("%s: the user's bytes changed", name)
		}
	}
	longest, lines := 0, 0
	for line := range strings.Lines(r.log.String()) {
		longest, lines = max(longest, len(line)), lines+1
		if strings.ContainsAny(line, "\x1b\x07\x00\u202e") {
			t.Errorf("the log steers a terminal: %.200q", line)
		}
	}
	if longest > 4096 {
		t.Errorf("a line of the log has %d bytes", longest)
	}
	if took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	c.untouched()
	r.nothingLeft()
	t.Logf("%d hostile manifests, %d refused: %v, %d lines in the log, the longest of %d bytes", n, sum.Refused, took.Round(time.Millisecond), lines, longest)
}

// Manifests of great size are read, decided and written in bounded time and memory, and hold up
// nothing for long. LEASEHOLD_SOAK makes them ten times as large.
func TestSoakHostileSizes(t *testing.T) {
	many := 10_000
	if soak(t) > 0 {
		many = 100_000
	}
	workers := func(more string) string {
		var b strings.Builder
		b.WriteString("kind: Job\napiVersion: leasehold.dev/v1alpha1\nmetadata: {name: j" + fmt.Sprint(len(more)) + "}\nspec:\n  clock: 100\n  ttl: 30\n  workers:\n")
		for i := range many {
			fmt.Fprintf(&b, "  - {name: w%d%s}\n", i, more)
		}
		return b.String()
	}
	documents := func() string {
		var b strings.Builder
		for i := range many / 50 {
			b.WriteString("---\n" + manifest(fmt.Sprint("d", i), 100))
		}
		return b.String()
	}
	slowest, most := time.Duration(0), uint64(0)
	for name, text := range map[string]string{
		"workers":         workers(""),
		"suspended":       workers(", suspend: true"),
		"reports":         workers(", release: {fence: 7}"),
		"wrong workers":   workers(", tll: 7"),
		"documents":       documents(),
		"wrong documents": strings.ReplaceAll(documents(), "ttl: 30", "ttl: -1"),
		"deep":            "a: " + strings.Repeat("[", many) + strings.Repeat("]", many) + "\n",
		"comments":        manifest("c", 1) + strings.Repeat("# x\n", 10*many),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, map[string]string{"big.yaml": text, "good.yaml": manifest("good", 100)})
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			r.once()
			took := time.Since(begun)
			runtime.ReadMemStats(&after)
			r.shows("good.yaml", "worker-a 1 130")
			lines, longest := 0, 0
			for line := range strings.Lines(r.log.String()) {
				if !strings.Contains(line, "level=DEBUG") && !strings.Contains(line, "took it") {
					lines++
				}
				longest = max(longest, len(line))
			}
			if lines > 2*mostLines || longest > 100*mostLines+20_000 {
				t.Errorf("%d lines in the log, the longest of %d bytes", lines, longest)
			}
			if total := after.Sys; total > 3<<30 {
				t.Errorf("%d MiB of memory", total>>20)
			}
			t.Logf("%s, %d KiB: %v, %d MiB allocated, %d MiB from the system", name, len(text)>>10, took.Round(time.Millisecond),
				(after.TotalAlloc-before.TotalAlloc)>>20, after.Sys>>20)
			slowest, most = max(slowest, took), max(most, after.Sys)
		})
	}
	t.Logf("%d workers, reports, mistakes or brackets in a manifest: %v at most, %d MiB at most", many, slowest.Round(time.Millisecond), most>>20)
}

// What another user of the machine could plant in a shared directory.
func TestPlanted(t *testing.T) {
	c := newCanary(t)
	r := newRig(t, map[string]string{"good.yaml": manifest("good", 100)})
	r.ok(syscall.Mkfifo(r.path("fifo.yaml"), 0o666))
	r.ok(os.Symlink(c.dir+"/a.yaml", r.path("link.yaml")))
	r.ok(os.Symlink("../../"+filepath.Base(c.dir)+"/a.yaml", r.path("relative.yaml")))
	r.ok(os.Symlink(c.dir, r.path("dir")))
	r.ok(os.Symlink("/dev/zero", r.path("zero.yaml")))
	r.ok(os.Symlink("/proc/self/mem", r.path("mem.yaml")))
	r.ok(os.Link(c.dir+"/a.yaml", r.path("hard.yaml")))
	// Names of our temps: links and a FIFO that a sweep, or the next write, might follow.
	sum := func(name, text string) string {
		digest := sha256.Sum256([]byte(text))
		return "." + name + ".leasehold-tmp-0123456789abcdef-" + hex.EncodeToString(digest[:8]) + "-01234567"
	}
	for i, at := range []string{".", ".leasehold"} {
		r.ok(os.Symlink(c.dir+"/secret", r.path(at+"/.good.yaml.leasehold-tmp-new-0000000"+fmt.Sprint(i))))
		r.ok(syscall.Mkfifo(r.path(at+"/.good.yaml.leasehold-tmp-new-1000000"+fmt.Sprint(i)), 0o666))
	}
	planted := sum("good.yaml", r.read("good.yaml"))
	r.ok(os.Link(c.dir+"/secret", r.path(planted)))
	r.start()
	if !strings.Contains(r.log.String(), planted) {
		t.Errorf("the planted temp is not told of:\n%s", r.log)
	}
	r.shows("good.yaml", "worker-a 1 130")
	r.until("the others are told", func() bool {
		log := r.log.String()
		for _, name := range []string{"fifo.yaml", "link.yaml", "relative.yaml", "zero.yaml", "mem.yaml", "hard.yaml"} {
			if !strings.Contains(log, name) {
				return false
			}
		}
		return true
	})
	r.edit("good.yaml", "clock: 100", "clock: 130")
	r.shows("good.yaml", "worker-b 2 160")
	if err := r.halt(); err != nil {
		t.Error(err)
	}
	os.Remove(r.path("hard.yaml"))
	os.Remove(r.path(planted))
	c.untouched()
}

// Links, directories and files take turns in a manifest's place while it is read and written: what
// they lead to outside is never written.
func TestSoakSwappedInBetween(t *testing.T) {
	t.Parallel()
	c := newCanary(t)
	r := newRig(t, map[string]string{"sub/a.yaml": manifest("a", 100)}).start()
	r.shows("sub/a.yaml", "worker-a 1 130")
	end := time.Now().Add(max(soak(t)/4, 2*time.Second))
	var wg sync.WaitGroup
	rounds := 0
	sub, err := os.OpenRoot(r.path("sub")) // wherever it is
	r.ok(err)
	defer sub.Close()
	wg.Go(func() { // the file is a link to the outside, in turn
		for i := 0; time.Now().Before(end); i++ {
			if i%2 == 0 {
				_ = sub.Symlink(c.dir+"/a.yaml", ".plant")
			} else {
				_ = sub.WriteFile(".plant", []byte(manifest("a", float64(100+i))), 0o644)
			}
			_ = sub.Rename(".plant", "a.yaml")
			rounds++
			if i%8 == 7 {
				<-time.After(3 * time.Millisecond) // let it be read
			}
		}
	})
	wg.Go(func() { // and so is its directory
		for time.Now().Before(end) {
			_ = os.Rename(r.path("sub"), r.path(".away"))
			_ = os.Symlink(c.dir, r.path("sub"))
			_ = os.Remove(r.path("sub"))
			_ = os.Rename(r.path(".away"), r.path("sub"))
			<-time.After(2 * time.Millisecond)
		}
	})
	wg.Wait()
	r.ok(os.RemoveAll(r.path("sub")))
	r.write("sub/a.yaml", manifest("a", 1e6))
	r.until("it is right in the end", func() bool { return r.status("sub/a.yaml").Owner != "" })
	c.untouched()
	t.Logf("%d links swapped in between: nothing outside was touched", rounds)
}
