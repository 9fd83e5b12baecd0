// Package browser looks at the console as people do: in Chromium.
package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

var program string

func TestMain(m *testing.M) {
	code := func() int {
		dir, err := os.MkdirTemp("", "leasehold-browser-")
		if err != nil {
			panic(err)
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "leasehold")
		build := exec.Command("go", "build", "-o", program, "./cmd/leasehold")
		build.Dir = filepath.Join("..", "..")
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "%s%v\n", out, err)
			return 1
		}
		return m.Run()
	}()
	os.Exit(code)
}

// served is a controller at work in a directory, with its console.
type served struct {
	t   *testing.T
	dir string
	url string
}

func serve(t *testing.T, files map[string]string) *served {
	s := &served{t: t, dir: t.TempDir()}
	for name, text := range files {
		s.write(name, text)
	}
	logged := &address{found: make(chan string, 1)}
	cmd := exec.Command(program, "run", "--listen", "127.0.0.1:0", s.dir)
	cmd.Stderr = logged
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v:\n%s", err, logged.text.String())
		}
	})
	select {
	case s.url = <-logged.found:
	case <-time.After(30 * time.Second):
		t.Fatal("the console does not say where it is")
	}
	return s
}

// address finds in a log where the console is.
type address struct {
	mu    sync.Mutex
	text  strings.Builder
	found chan string
}

var where = regexp.MustCompile(`the console is at (\S+)/`)

func (a *address) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.text.Len() < 1<<20 {
		a.text.Write(p)
	}
	if m := where.FindSubmatch(p); m != nil {
		a.found <- string(m[1])
	}
	return len(p), nil
}

func (s *served) write(name, text string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
}

// do runs a command in the directory.
func (s *served) do(args ...string) string {
	s.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 3) { // 3: refused
		s.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// metric waits until /metrics has a line.
func (s *served) metric(line string) {
	s.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		resp, err := http.Get(s.url + "/metrics")
		if err != nil {
			s.t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			s.t.Fatal(err)
		}
		if strings.Contains(string(text), line+"\n") {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain for %s in\n%s", line, text)
		}
	}
}

// tab is a browser of its own with one page. Whatever that page complains of is an error.
type tab struct {
	t   *testing.T
	ctx context.Context
}

func open(t *testing.T) *tab {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("LEASEHOLD_TEST_ALL") != "" {
			t.Fatal(err)
		}
		t.Skip("the console in a browser: for want of chromium")
	}
	flags := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir())}
	for _, f := range []string{"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run",
		"disable-background-networking", "disable-component-update", "disable-sync", "hide-scrollbars", "disable-dev-shm-usage"} {
		flags = append(flags, chromedp.Flag(f, true))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 140*time.Second)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, flags...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(func(e any) {
		switch e := e.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page threw: %v", e.ExceptionDetails)
		case *log.EventEntryAdded:
			if e.Entry.Level == log.EntryLevelError {
				t.Errorf("the browser complains: %s %s", e.Entry.Text, e.Entry.URL)
			}
		}
	}))
	b := &tab{t, ctx}
	t.Cleanup(func() {
		_ = chromedp.Cancel(ctx) // waits for the process, which still writes into its directory
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil { // the browser lives as long as this context
		t.Fatal(err)
	}
	return b
}

// step is something done in a page.
type step = chromedp.Action[chromedp.Void]

func (b *tab) run(steps ...step) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 30*time.Second)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%v; the page says\n%s", err, value[string](b, "document.body.innerText"))
	}
}

// until waits for a condition in the page.
func (b *tab) until(what, condition string) {
	b.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for !value[bool](b, "(() => { try { return Boolean("+condition+") } catch { return false } })()") {
		if time.Now().After(deadline) {
			b.shot("failed.png", 1280, 900, false)
			b.t.Fatalf("waited in vain for %s; the page says\n%s", what, value[string](b, "document.body.innerText"))
		}
		<-tick.C
	}
}

// value is what an expression is in the page.
func value[T any](b *tab, expression string) T {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// js runs a script in the page.
func js(script string) step { return chromedp.Evaluate[chromedp.Void](script) }

// pictures is where screenshots go. Git ignores it.
const pictures = "screenshots"

// shot keeps a picture of the whole page, for people to look at.
func (b *tab) shot(name string, width, height int64, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	b.run(chromedp.EmulateViewport(width, height), js("scrollTo(0, 0)"))
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	if err != nil {
		b.t.Fatal(err)
	}
	png, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Fatal(err)
	}
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(pictures, name), png, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// shots keeps a picture for each kind of screen.
func (b *tab) shots(name string) {
	b.t.Helper()
	for _, width := range []int64{1280, 390} {
		for _, theme := range []string{"light", "dark"} {
			b.shot(fmt.Sprintf("%s-%d-%s.png", name, width, theme), width, 844, theme == "dark")
		}
	}
	b.run(chromedp.EmulateViewport(390, 844))
	if wide := value[int](b, "document.documentElement.scrollWidth"); wide > 390 {
		b.t.Errorf("%s is %d pixels wide on a narrow screen", name, wide)
	}
	b.run(chromedp.EmulateViewport(1280, 844))
}
