package controller

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/leasehold/manifests"
)

// deblasis/wintty#1138: truncate, wait, write. The empty moment is no deletion and no error.
func TestTruncateWaitWrite(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("j", 100)}).start()
	r.shows("a.yaml", "worker-a 1 130")
	text := strings.Replace(r.read("a.yaml"), "clock: 100", "clock: 110\n  suspend: true", 1)
	f, err := os.OpenFile(r.path("a.yaml"), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	<-time.After(120 * time.Millisecond) // the pause is the case
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	f.Close()
	hash := manifests.Decode("a.yaml", []byte(text)).Docs[0].Job.Spec.Hash()
	r.until("the save is looked at", func() bool { return r.status("a.yaml").SpecHash == hash })
	r.shows("a.yaml", "worker-a 1 130")
	if log := r.log.String(); strings.Contains(log, "level=WARN") || strings.Contains(log, "gone") {
		t.Errorf("the empty moment was told:\n%s", log)
	}
}

// spf13/viper#284: a mounted ConfigMap. Nothing names the manifest, yet it changed.
func TestConfigMapSwap(t *testing.T) {
	r := newRig(t, map[string]string{
		"..v1/a.yaml": manifest("mounted", 100),
		"..v2/a.yaml": manifest("mounted", 130),
	})
	link := func(target, name string) {
		t.Helper()
		temp := r.path("tmp-link")
		if err := os.Symlink(target, temp); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temp, r.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	link("..v1", "..data")
	link("..data/a.yaml", "a.yaml")
	r.start()
	r.shows("a.yaml", "worker-a 1 130")
	link("..v2", "..data")
	r.shows("a.yaml", "worker-b 2 160")
	if strings.Contains(r.log.String(), "Duplicate") {
		t.Errorf("..v1 was scanned:\n%s", r.log)
	}
	if i, err := os.Lstat(r.path("a.yaml")); err != nil || i.Mode()&os.ModeSymlink == 0 {
		t.Error("the link did not survive")
	}
}

// QwenLM/qwen-code PR#3774: two saves of equal length within a tick of the timestamps.
func TestEqualLengthSaves(t *testing.T) {
	r := newRig(t, map[string]string{"a.yaml": manifest("j", 100)}).start()
	r.shows("a.yaml", "worker-a 1 130")
	for i := range 20 {
		text := r.read("a.yaml")
		spec, _, _ := strings.Cut(text, "status:")
		save := func(clock int) {
			head, rest, _ := strings.Cut(spec, "clock: ")
			if err := os.WriteFile(r.path("a.yaml"), []byte(fmt.Sprintf("%sclock: %d%s", head, clock, rest[3:])), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		save(200 + 40*i)
		save(220 + 40*i)
		r.until("the second save is seen", func() bool {
			s := r.status("a.yaml")
			return s.ObservedClock != nil && *s.ObservedClock == float64(220+40*i)
		})
	}
}

// Saves in every style while the controller writes status: none is lost, no reader sees a torn
// file, and nothing is left behind.
func TestSavesWhileStatusIsWritten(t *testing.T) {
	const files, saves = 4, 125
	styles := []struct {
		name string
		save func(path, text string) error
	}{
		{"truncate", func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }},
		{"truncate slowly", func(path, text string) error {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			if err != nil {
				return err
			}
			for i := 0; i < len(text); i += 40 {
				if _, err := f.WriteString(text[i:min(i+40, len(text))]); err != nil {
					return err
				}
				<-time.After(time.Duration(rand.IntN(400)) * time.Microsecond) // the slowness is the style
			}
			return f.Close()
		}},
		{"rename over", func(path, text string) error {
			temp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".swp")
			if err := os.WriteFile(temp, []byte(text), 0o644); err != nil {
				return err
			}
			return os.Rename(temp, path)
		}},
		{"move aside", func(path, text string) error {
			if err := os.Rename(path, path+"~"); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return err
			}
			return os.Remove(path + "~")
		}},
	}
	initial := map[string]string{}
	text := func(style, file, save int) string {
		name := fmt.Sprintf("s%d-%d", style, file)
		return manifest(name, float64(100+save)) + fmt.Sprintf("# save %d of %s\n", save, name)
	}
	for s := range styles {
		for f := range files {
			initial[fmt.Sprintf("s%d-%d.yaml", s, f)] = text(s, f, 0)
		}
	}
	r := newRig(t, initial).start()
	var wg sync.WaitGroup
	for s, style := range styles {
		for f := range files {
			wg.Go(func() {
				name := fmt.Sprintf("s%d-%d.yaml", s, f)
				for n := 1; n <= saves/files; n++ {
					if err := style.save(r.path(name), text(s, f, n)); err != nil {
						t.Errorf("%s: %v", style.name, err)
					}
					// Between saves the controller gets the time to write, sometimes.
					<-time.After(time.Duration(rand.IntN(6000)) * time.Microsecond)
				}
			})
		}
	}
	wg.Wait()
	last := saves / files
	for s, style := range styles {
		for f := range files {
			name := fmt.Sprintf("s%d-%d.yaml", s, f)
			want := text(s, f, last)
			hash := manifests.Decode(name, []byte(want)).Docs[0].Job.Spec.Hash()
			waitFor(t, style.name+" converges", func() (bool, string) {
				got := r.read(name)
				return r.status(name).SpecHash == hash && strings.HasPrefix(got, want), got
			})
		}
	}
	if err := r.halt(); err != nil {
		t.Fatal(err)
	}
	entries, _ := os.ReadDir(r.dir)
	for _, e := range entries {
		if e.Name() != ".leasehold" && initial[e.Name()] == "" {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}
