//go:build linux

package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// styles of saving, each a way in which common programs do it. pause is a writer that thinks.
var styles = []struct {
	name string
	save func(path, data string) error
}{
	{"truncate and write", func(p, d string) error { return overwrite(p, os.O_TRUNC|os.O_CREATE, d) }},
	{"truncate slowly", func(p, d string) error {
		f, err := os.OpenFile(p, os.O_WRONLY|os.O_TRUNC|os.O_CREATE, 0o644)
		if err != nil {
			return err
		}
		for i := 0; i < len(d); i += 100 {
			pause()
			if _, err := f.WriteString(d[i:min(i+100, len(d))]); err != nil {
				return err
			}
		}
		return f.Close()
	}},
	{"rename over", renameOver},
	{"move aside", func(p, d string) error {
		err := os.Rename(p, p+"~")
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the file was not there: %w", err)
		}
		return errors.Join(err, os.WriteFile(p, []byte(d), 0o644))
	}},
}

func pause() { <-time.After(300 * time.Microsecond) }

// saveText is long enough to be torn, and says where it ends.
func saveText(n int) string {
	return fmt.Sprintf("user: %06d\n%send: %06d\n", n, strings.Repeat(fmt.Sprintf("# line of save %06d\n", n), 40), n)
}

// saveNumber reads it back; it fails for a text that is not whole.
func saveNumber(data []byte) (int, error) {
	user := userPart(data)
	if len(user) < 13 {
		return 0, fmt.Errorf("torn: %q", data)
	}
	n, err := strconv.Atoi(string(user[6:12]))
	if err != nil || string(user) != saveText(n) {
		return 0, fmt.Errorf("torn: %q", data)
	}
	return n, nil
}

// TestMain is also the program that saves, for the tests that want one.
func TestMain(m *testing.M) {
	if path := os.Getenv("LEASEHOLD_TEST_SAVE"); path != "" {
		os.Exit(saveMany(path, os.Getenv("LEASEHOLD_TEST_STYLE")))
	}
	if step := os.Getenv("LEASEHOLD_TEST_CRASH"); step != "" {
		os.Exit(crashAt(os.Getenv("LEASEHOLD_TEST_DIR"), os.Getenv("LEASEHOLD_TEST_TEMP"), step, os.Getenv("LEASEHOLD_TEST_SLIP")))
	}
	os.Exit(m.Run())
}

func saveMany(path, style string) int {
	from, _ := strconv.Atoi(os.Getenv("LEASEHOLD_TEST_FROM"))
	to, _ := strconv.Atoi(os.Getenv("LEASEHOLD_TEST_TO"))
	for _, s := range styles {
		if s.name != style {
			continue
		}
		for n := from; n < to; n++ {
			if err := s.save(path, saveText(n)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			pause()
		}
	}
	return 0
}

// 500 quick saves in four styles against a controller that writes status all the time. Whatever
// the controller reads is whole and never older than what it has read before; in the end the last
// save stands, with a status.
func TestFiveHundredSaves(t *testing.T) {
	for _, where := range []string{"here", "in another process", "temp directory"} {
		t.Run(where, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.yaml")
			write(t, path, saveText(0))
			temp := ""
			if where == "temp directory" {
				temp = t.TempDir()
			}
			tree := openTree(t, dir, temp)
			tree.Restored = func(path string, err error) {
				if err != nil {
					t.Errorf("a save was not restored: %v", err)
				}
			}
			next := 1
			for _, style := range styles {
				save := func() error {
					for range 125 {
						if err := style.save(path, saveText(next)); err != nil {
							return err
						}
						next++
						pause()
					}
					return nil
				}
				if where == "in another process" {
					save = func() error {
						cmd := exec.Command(os.Args[0])
						cmd.Env = append(os.Environ(), "LEASEHOLD_TEST_SAVE="+path, "LEASEHOLD_TEST_STYLE="+style.name,
							fmt.Sprint("LEASEHOLD_TEST_FROM=", next), fmt.Sprint("LEASEHOLD_TEST_TO=", next+125))
						cmd.Stderr = os.Stderr
						next += 125
						return cmd.Run()
					}
				}
				saveAgainst(t, tree, path, style.name, save)
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				n, err := saveNumber(data)
				if err != nil || n != next-1 {
					t.Fatalf("%s: save %d was the last one, the file holds %d (%v)", style.name, next-1, n, err)
				}
				if !bytes.Contains(data, []byte("status:")) {
					t.Fatalf("%s: no status", style.name)
				}
			}
			nothingLeft(t, dir)
			if temp != "" {
				nothingLeft(t, temp)
			}
		})
	}
}

func saveAgainst(t *testing.T, tree *Tree, path, style string, save func() error) {
	var stop atomic.Bool
	var passes, wrote int
	var wg sync.WaitGroup
	wg.Go(func() { // the controller
		last := 0
		step := func() bool {
			s, err := tree.Read("a.yaml", testLimit)
			if err != nil {
				if !errors.Is(err, ErrBusy) && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
				return false
			}
			n, err := saveNumber(s.Data)
			if err != nil {
				t.Errorf("%s: %v", style, err)
			}
			if n < last {
				t.Errorf("%s: save %d was there again after %d", style, n, last)
			}
			last = n
			passes++
			_, err = tree.Replace("a.yaml", s, withStatus(s.Data, passes))
			if err != nil && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrChanged) {
				t.Error(err)
			}
			if err == nil {
				wrote++
			}
			return err == nil
		}
		for !stop.Load() {
			step()
		}
		eventually(t, "a last pass", step)
	})
	wg.Go(func() { // a reader: what renaming savers leave is never torn or missing because of us
		for !stop.Load() && style == "rename over" {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Error(err)
			} else if _, err := saveNumber(data); err != nil {
				t.Error(err)
			}
		}
	})
	if err := save(); err != nil {
		t.Errorf("%s: %v", style, err)
	}
	stop.Store(true)
	wg.Wait()
	// A writer that was late may have had its file brought back after the last pass.
	eventually(t, "the graves", func() bool {
		tree.graves.mu.Lock()
		defer tree.graves.mu.Unlock()
		return len(tree.graves.list) == 0
	})
	eventually(t, "the very last pass", func() bool {
		ok, err := pass(tree, "a.yaml", 1_000_000)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	})
	t.Logf("%s: %d passes, %d statuses written", style, passes, wrote)
}
