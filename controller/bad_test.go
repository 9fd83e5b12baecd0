//go:build unix

package controller

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"leasehold.dev/leasehold/manifests"
)

// Everything that can stand in the place of a manifest gets its line, in the log and, where there
// is a document, in its status, and the good manifests beside it are leased as if it were not there.
func TestEveryKindOfBadManifest(t *testing.T) {
	spec := func(name, spec string) string {
		return "apiVersion: leasehold.dev/v1alpha1\nkind: Job\nmetadata:\n  name: " + name + "\nspec:\n" + spec
	}
	workers := "  workers:\n  - name: a\n"
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for i := range 9 {
		bomb += fmt.Sprintf("%c: &%[1]c [*%c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c]\n", 'b'+i, 'a'+i)
	}
	// By file name: the text, and what the line says.
	bad := map[string][2]string{
		"clock-text.yaml":    {spec("j", "  clock: noon\n  ttl: 5\n"+workers), "clock-text.yaml:6: spec.clock"},
		"ttl-negative.yaml":  {spec("j", "  ttl: -5\n"+workers), "ttl-negative.yaml:6: spec.ttl: Invalid value: -5: must be greater than 0"},
		"ttl-zero.yaml":      {spec("j", "  ttl: 0\n"+workers), "ttl-zero.yaml:6: spec.ttl"},
		"ttl-nan.yaml":       {spec("j", "  ttl: .nan\n"+workers), "ttl-nan.yaml:6: spec.ttl"},
		"ttl-inf.yaml":       {spec("j", "  ttl: .inf\n"+workers), "ttl-inf.yaml:6: spec.ttl"},
		"ttl-quoted.yaml":    {spec("j", "  ttl: \"30\"\n"+workers), "ttl-quoted.yaml:6: spec.ttl"},
		"ttl-missing.yaml":   {spec("j", workers), "spec.ttl: Required value"},
		"unknown.yaml":       {spec("j", "  ttl: 5\n  tll: 6\n"+workers), "unknown.yaml:7: spec.tll"},
		"duplicate.yaml":     {spec("j", "  ttl: 5\n  ttl: 6\n"+workers), "duplicate.yaml:7: spec.ttl"},
		"case.yaml":          {spec("j", "  ttl: 5\n"+workers) + "Spec: {}\n", "case.yaml:9: Spec"},
		"version.yaml":       {strings.Replace(spec("j", "  ttl: 5\n"+workers), "v1alpha1", "v1", 1), "version.yaml:1: apiVersion"},
		"kind.yaml":          {strings.Replace(spec("j", "  ttl: 5\n"+workers), "kind: Job", "kind: Jobs", 1), "kind.yaml:2: kind"},
		"name.yaml":          {spec("Not_A_Name", "  ttl: 5\n"+workers), "name.yaml:4: metadata.name"},
		"generate.yaml":      {strings.Replace(spec("j-", "  ttl: 5\n"+workers), "name:", "generateName:", 1), "generate.yaml:"},
		"no-workers.yaml":    {spec("j", "  ttl: 5\n  workers: []\n"), "spec.workers"},
		"twins.yaml":         {spec("j", "  ttl: 5\n"+workers+"  - name: a\n"), "twins.yaml:9: spec.workers[1].name"},
		"fraction.yaml":      {spec("j", "  ttl: 5\n"+workers+"    release: {fence: 1.5}\n"), "fraction.yaml:9: spec.workers[0].release.fence"},
		"contradiction.yaml": {spec("j", "  ttl: 5\n"+workers+"    release: {fence: 1}\n    complete: {fence: 1, result: r}\n"), "contradiction.yaml:"},
		"template.yaml":      {spec("{{ .Name }}", "  ttl: 5\n"+workers), "template.yaml:4: metadata.name"},
		"template-flow.yaml": {"{{ .Values.job }}\n", "template-flow.yaml:1"},
		"conflict.yaml":      {"<<<<<<< HEAD\n" + spec("j", "  ttl: 5\n"+workers), "conflict.yaml:1: "},
		"latin1.yaml":        {spec("j", "  ttl: 5\n  data: {a: caf\xe9}\n"+workers), "latin1.yaml:7: "},
		"utf16.yaml":         {"\xff\xfea\x00:\x00 \x00b\x00\n\x00", "utf16.yaml:1: "},
		"bom-middle.yaml":    {spec("j", "  ttl: 5\n"+workers) + "\xef\xbb\xbfstatus: {}\n", "bom-middle.yaml:9: "},
		"bomb.yaml":          {bomb + spec("j", "  ttl: 5\n"+workers), "bomb.yaml"},
		"large.yaml":         {"# " + strings.Repeat("x", 60<<20), "large.yaml"},
		"tab.yaml":           {"apiVersion: leasehold.dev/v1alpha1\nkind: Job\nspec:\n\tttl: 5\n", "tab.yaml:4: "},
	}
	files := map[string]string{"a-good.yaml": manifest("first", 0), "z-good.yaml": manifest("last", 0)}
	i := 0
	for name, b := range bad {
		files[name] = strings.Replace(b[0], "name: j\n", fmt.Sprintf("name: j%d\n", i), 1)
		i++
	}
	r := newRig(t, files)
	want := []string{"fifo.yaml", "dir.yaml", "dangling.yaml", "loop.yaml", "outside.yaml"}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(syscall.Mkfifo(r.path("fifo.yaml"), 0o644))
	check(os.Mkdir(r.path("dir.yaml"), 0o755))
	check(os.Symlink("nowhere.yaml", r.path("dangling.yaml")))
	check(os.Symlink("loop.yaml", r.path("loop.yaml")))
	check(os.WriteFile(r.dir+"-outside.yaml", []byte(manifest("outside", 0)), 0o644))
	check(os.Symlink("../jobs-outside.yaml", r.path("outside.yaml")))
	if os.Geteuid() != 0 {
		check(os.WriteFile(r.path("unreadable.yaml"), nil, 0))
		want = append(want, "unreadable.yaml")
	}

	s := r.once()
	for _, name := range []string{"a-good.yaml", "z-good.yaml"} {
		if got := summary(r.status(name)); got != "worker-a 1 30" {
			t.Errorf("%s is not leased as if the others were not there: %s", name, got)
		}
	}
	if s.Refused < len(bad)+5 {
		t.Errorf("%d refused, of %d", s.Refused, len(bad)+5)
	}
	log := r.log.String()
	for name, b := range bad {
		if !strings.Contains(log, b[1]) {
			t.Errorf("%s: no line with %q", name, b[1])
		}
		f := manifests.Decode(name, []byte(files[name]))
		if len(f.Docs) != 1 {
			continue
		}
		if got := conditionOf(r.status(name), "Accepted"); got != "False Invalid" {
			t.Errorf("%s: Accepted is %q in\n%s", name, got, r.read(name))
		}
	}
	for _, name := range want {
		if !strings.Contains(log, name) {
			t.Errorf("no line about %s", name)
		}
	}
	if t.Failed() {
		t.Log(log)
	}
	if r.read("conflict.yaml") != files["conflict.yaml"] || r.read("latin1.yaml") != files["latin1.yaml"] {
		t.Error("what cannot be parsed was touched")
	}
}
