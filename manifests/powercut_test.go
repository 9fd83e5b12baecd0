//go:build linux

package manifests

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/leasehold/hack/strace"
)

// disk is what a record of system calls leaves in a directory. What the directories name is kept as
// it is and as it was at the last sync, with what has been done since; bytes likewise.
type disk struct {
	root   string
	names  map[string]int               // path to file, as processes see it
	synced map[string]int               // as it is on disk for certain
	since  []func(names map[string]int) // changes of names since, in order
	where  [][]string                   // the directories of each
	files  []blob
}

type blob struct{ data, synced string }

func (d *disk) change(f func(map[string]int), dirs ...string) {
	f(d.names)
	d.since, d.where = append(d.since, f), append(d.where, dirs)
}

// see takes a call into account.
func (d *disk) see(c strace.Call) {
	below := func(p string) bool { return strings.HasPrefix(p, d.root+"/") }
	switch {
	case c.Name == "openat" && strings.Contains(c.Args[2], "O_CREAT"):
		if p := c.Path(0); below(p) {
			if _, ok := d.names[p]; !ok {
				d.files = append(d.files, blob{})
				n := len(d.files) - 1
				d.change(func(names map[string]int) { names[p] = n }, filepath.Dir(p))
			}
		}
	case c.Name == "write" || c.Name == "pwrite64":
		if n, ok := d.names[c.Args[0]]; ok && below(c.Args[0]) {
			d.files[n].data += c.Args[1] // written once, from the start
		}
	case strings.HasSuffix(c.Name, "sync"):
		p := c.Args[0]
		if n, ok := d.names[p]; ok {
			d.files[n].synced = d.files[n].data
			return
		}
		// A directory: what was done in it is on disk, and all that was done before, since file
		// systems keep a journal of names in order.
		last := 0
		for i, dirs := range d.where {
			if slices.Contains(dirs, p) {
				last = i + 1
			}
		}
		for _, f := range d.since[:last] {
			f(d.synced)
		}
		d.since, d.where = d.since[last:], d.where[last:]
	case strings.HasPrefix(c.Name, "rename"):
		from, to := c.Path(0), c.Path(2)
		if !below(to) {
			return
		}
		exchange := c.Name == "renameat2" && strings.Contains(c.Args[4], "EXCHANGE")
		d.change(func(names map[string]int) {
			a, b := names[from], names[to]
			names[to] = a
			if exchange {
				names[from] = b
			} else {
				delete(names, from)
			}
		}, filepath.Dir(from), filepath.Dir(to))
	case strings.HasPrefix(c.Name, "unlink"):
		if p := c.Path(0); below(p) {
			d.change(func(names map[string]int) { delete(names, p) }, filepath.Dir(p))
		}
	}
}

// after returns every state that a power cut may leave: each prefix of what was done to names since
// the last sync, in which files whose bytes were not synced are empty, cut off, or whole.
func (d *disk) after() (states []map[string]string) {
	for n := 0; n <= len(d.since); n++ {
		names := maps.Clone(d.synced)
		for _, f := range d.since[:n] {
			f(names)
		}
		for _, bytes := range []func(blob) string{
			func(b blob) string { return b.synced },
			func(b blob) string { return b.data[:max(len(b.synced), len(b.data)/2)] },
			func(b blob) string { return b.data },
		} {
			state := map[string]string{}
			for p, n := range names {
				state[strings.TrimPrefix(p, d.root+"/")] = bytes(d.files[n])
			}
			if !slices.ContainsFunc(states, func(s map[string]string) bool { return maps.Equal(s, state) }) {
				states = append(states, state)
			}
		}
	}
	return states
}

const cutReplacements = 3

func cutText(n int) string {
	text := job() + "# the user's own words, " + strings.Repeat("x", 5000) + "\n"
	if n == 0 {
		return text
	}
	return text + fmt.Sprintf("status:\n  fence: %d\n", n)
}

// cutChild replaces a file several times and creates another.
func cutChild(dir string) error {
	temp := filepath.Join(dir, ".leasehold")
	tree, err := OpenTree(dir, temp)
	if err != nil {
		return err
	}
	for n := 1; n <= cutReplacements; n++ {
		for {
			s, err := tree.Read("a.yaml", testLimit)
			if err == nil {
				_, err = tree.Replace("a.yaml", s, []byte(cutText(n)))
			}
			if err == nil {
				break
			}
			if !errors.Is(err, ErrBusy) && !errors.Is(err, ErrChanged) {
				return err
			}
		}
	}
	return errors.Join(tree.Create("b.yaml", []byte(cutText(1))), tree.Close())
}

// TestPowerCut cuts a record of real writes at every point and looks at everything that a power cut
// there could leave behind: the old file or the new one, never a part, and never one before what a
// synced replacement left. Sweep then finds nothing that it cannot put away.
func TestPowerCut(t *testing.T) {
	if dir := os.Getenv("LEASEHOLD_TEST_CUT"); dir != "" {
		if err := cutChild(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".leasehold"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a.yaml"), cutText(0))
	record := filepath.Join(t.TempDir(), "record")
	cmd := exec.Command(os.Args[0], "-test.run=^TestPowerCut$")
	if err := strace.Command(cmd, record); err != nil {
		if errors.Is(err, strace.ErrMissing) && os.Getenv("LEASEHOLD_TEST_ALL") == "" {
			t.Skip("the record of a power cut: for want of strace")
		}
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "LEASEHOLD_TEST_CUT="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	calls, err := strace.Read(record)
	if err != nil {
		t.Fatal(err)
	}
	a := filepath.Join(dir, "a.yaml")
	d := &disk{root: dir, names: map[string]int{a: 0}, synced: map[string]int{a: 0}, files: []blob{{cutText(0), cutText(0)}}}
	checked, points, floor, seen := 0, 0, 0, map[int]bool{}
	for _, c := range calls {
		d.see(c)
		points++
		if strings.HasSuffix(c.Name, "sync") && c.Args[0] == dir {
			// What stood there when the directory was synced stays.
			floor = max(floor, cutNumber(d.files[d.synced[a]].data))
		}
		for _, state := range d.after() {
			checked++
			n := cutNumber(state["a.yaml"])
			if seen[n] = true; n < floor {
				t.Fatalf("after call %d, %s: a.yaml is %d, though %d was synced: %q", points, c.Name, n, floor, state["a.yaml"])
			}
			if text, ok := state["b.yaml"]; ok && text != cutText(1) {
				t.Fatalf("after call %d: b.yaml is torn: %q", points, text)
			}
			checkSwept(t, state)
		}
	}
	if len(seen) != cutReplacements+1 || seen[-1] || floor != cutReplacements {
		t.Errorf("versions seen %v, the last one synced %d", slices.Sorted(maps.Keys(seen)), floor)
	}
	// The check itself: without the sync of bytes, a torn file must show.
	if !torn(calls, dir) {
		t.Error("a record without syncs passes as well")
	}
	t.Logf("figures: power cut, manifests: %d points of a record, %d states that a cut could leave, each with the old file or the new one", points, checked)
}

// cutNumber tells which version a text is; -1: none.
func cutNumber(text string) int {
	for n := range cutReplacements + 1 {
		if text == cutText(n) {
			return n
		}
	}
	return -1
}

// checkSwept opens a state as the next start does.
func checkSwept(t *testing.T, state map[string]string) {
	t.Helper()
	dir, err := os.MkdirTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Mkdir(filepath.Join(dir, ".leasehold"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range state {
		write(t, filepath.Join(dir, name), text)
	}
	tree, err := OpenTree(dir, filepath.Join(dir, ".leasehold"))
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if err := tree.Sweep(); err != nil {
		t.Fatalf("%v, in %q", err, brief(state))
	}
	if got := content(t, filepath.Join(dir, "a.yaml")); got != state["a.yaml"] {
		t.Fatalf("Sweep made of version %d version %d: %q", cutNumber(state["a.yaml"]), cutNumber(got), brief(state))
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Fatalf("left behind: %q", left)
	}
}

// brief says what stands where.
func brief(state map[string]string) (lines []string) {
	for _, p := range slices.Sorted(maps.Keys(state)) {
		lines = append(lines, fmt.Sprintf("%s: version %d, %d bytes", p, cutNumber(state[p]), len(state[p])))
	}
	return lines
}

func torn(calls []strace.Call, dir string) bool {
	a := filepath.Join(dir, "a.yaml")
	d := &disk{root: dir, names: map[string]int{a: 0}, synced: map[string]int{a: 0}, files: []blob{{cutText(0), cutText(0)}}}
	for _, c := range calls {
		if strings.HasSuffix(c.Name, "sync") && c.Args[0] != dir {
			continue
		}
		d.see(c)
		for _, state := range d.after() {
			if cutNumber(state["a.yaml"]) < 0 {
				return true
			}
		}
	}
	return false
}
