//go:build unix

package controller

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/leasehold/manifests"
)

// soak is how long the long tests go on; 0 means the short form.
func soak(t *testing.T) time.Duration {
	d := os.Getenv("LEASEHOLD_SOAK")
	if d == "" {
		return 0
	}
	long, err := time.ParseDuration(d)
	if err != nil {
		t.Fatalf("LEASEHOLD_SOAK: %v", err)
	}
	return long
}

// saver is a user who edits one manifest and keeps no status in it, as one does who has it in
// another place and copies it.
type saver struct {
	name   string
	clock  int
	beats  int
	text   string
	before string           // the text before that
	result string           // that the job was seen to have
	owners map[int64]string // by fence, as seen in status
	asked  map[string]int   // heartbeats that were written, by owner and fence
}

// save writes the next version of the manifest, going by what status showed last.
func (s *saver) save(r *rig, shown *manifests.JobStatus) {
	s.clock += rand.IntN(20)
	worker := map[string]string{}
	fence := int64(1)
	if shown.Fence != nil {
		fence = *shown.Fence
	}
	report := func(name string, fence int64) {
		switch rand.IntN(8) {
		case 0:
			worker[name] = fmt.Sprintf("    complete: {fence: %d, result: by %s with %[1]d}\n", fence, name)
		case 1, 2:
			worker[name] = fmt.Sprintf("    release: {fence: %d}\n", fence)
		default:
			s.beats++
			s.asked[fmt.Sprint(name, fence)]++
			worker[name] = fmt.Sprintf("    renew: {fence: %d, time: %d}\n", fence, s.beats)
		}
	}
	if shown.Owner != "" {
		report(shown.Owner, fence)
	}
	if rand.IntN(3) == 0 && fence > 1 { // one that lost its lease wakes up
		report([]string{"worker-a", "worker-b"}[rand.IntN(2)], fence-1)
	}
	id := strings.TrimSuffix(s.name, ".yaml")
	s.before = s.text
	s.text = fmt.Sprintf("# save %d\nkind: Job\napiVersion: leasehold.dev/v1alpha1\nmetadata: {name: %s}\nspec:\n  clock: %d   # now\n  ttl: 30\n  workers:\n  - name: worker-a\n%s  - name: worker-b\n%s",
		rand.IntN(1e6), id, s.clock, worker["worker-a"], worker["worker-b"])
	temp := r.path("." + s.name + ".swp")
	if err := os.WriteFile(temp, []byte(s.text), 0o644); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(temp, r.path(s.name)); err != nil {
		r.t.Fatal(err)
	}
}

// look checks the file against what the user wrote, and its status against what was seen before. A
// save that slips in while status is written may be displaced for a moment, and after a kill until
// the next start: then the one before it stands there.
func (s *saver) look(r *rig, killed bool) *manifests.JobStatus {
	r.t.Helper()
	var data string
	waitFor(r.t, "the save stands in "+s.name, func() (bool, string) {
		data = r.read(s.name)
		got := string(manifests.StripStatus(s.name, []byte(data)))
		return got == s.text || killed && got == s.before, "there is:\n" + data + "it was:\n" + s.text
	})
	shown := &manifests.JobStatus{}
	if f := manifests.Decode(s.name, []byte(data)); f.Docs[0].Status != nil {
		shown = f.Docs[0].Status
	}
	if shown.Fence == nil || *shown.Fence == 0 {
		return shown
	}
	if was := s.owners[*shown.Fence]; shown.Owner != "" {
		if was != "" && was != shown.Owner {
			r.t.Errorf("%s: fence %d was %s's and is %s's", s.name, *shown.Fence, was, shown.Owner)
		}
		s.owners[*shown.Fence] = shown.Owner
	}
	result := ""
	if shown.Result != nil {
		result = *shown.Result
	}
	if s.result != "" && result != s.result {
		r.t.Errorf("%s: the result was %q and is %q", s.name, s.result, result)
	}
	s.result = result
	return shown
}

// The controller is killed again and again while manifests are saved: whatever it was doing, files
// are whole, no edit is lost, no fence has two owners, no result changes, each report is carried out
// once, nothing is left behind, and the next one goes on. LEASEHOLD_SOAK makes it long.
func TestSoakKills(t *testing.T) {
	t.Parallel()
	kills, saves, dones := 0, 0, 0
	begun, long := time.Now(), soak(t)
	for more := true; more && !t.Failed(); more = time.Since(begun) < long {
		k, s, d := testKills(t, 25)
		kills, saves, dones = kills+k, saves+s, dones+d
	}
	t.Logf("%d kill -9 under %d saves, %d jobs completed: every byte of the user's kept, no fence for two owners, no result changed, no report carried out twice, nothing left behind", kills, saves, dones)
}

func testKills(t *testing.T, kills int) (killed, saves, dones int) {
	r := newRig(t, nil)
	var savers []*saver
	for i := range 24 {
		s := &saver{name: fmt.Sprintf("j%d.yaml", i), clock: 100, owners: map[int64]string{}, asked: map[string]int{}}
		s.save(r, &manifests.JobStatus{})
		savers = append(savers, s)
	}
	for ; killed < kills; killed++ {
		c := child(r.dir, "")
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		errs := &buffer{}
		c.Stderr = errs
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
			t.Fatalf("the controller did not start: %s%s", line, errs)
		}
		end := time.After(time.Duration(rand.IntN(60_000)) * time.Microsecond)
		for alive := true; alive; {
			select {
			case <-end: // in the middle of whatever it is at
				alive = false
			default:
				s := savers[rand.IntN(len(savers))]
				s.save(r, s.look(r, false))
				saves++
			}
		}
		if err := c.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait()
		for _, s := range savers {
			s.look(r, true)
		}
	}
	if sum := r.once(); sum.Faulty+sum.Refused > 0 {
		t.Errorf("the last pass: %+v\n%s", sum, r.log)
	}
	for _, s := range savers {
		if shown := s.look(r, false); shown.SpecHash != manifests.Decode(s.name, []byte(s.text)).Docs[0].Job.Spec.Hash() {
			t.Errorf("%s has not converged:\n%s", s.name, r.read(s.name))
		}
		if s.result != "" {
			dones++
		}
	}
	r.nothingLeft()
	if left, _ := filepath.Glob(r.path(".*.swp")); len(left) > 0 {
		t.Errorf("left by the user: %q", left)
	}
	claims, completions, beats := map[string]string{}, map[string]int{}, map[string]int64{}
	for _, e := range r.events() {
		switch at := fmt.Sprint(e.ID, " ", e.Fence); {
		case e.Reason != "":
		case e.Verb == "claimed" && e.Count == 1:
			if was := claims[at]; was != "" {
				t.Errorf("%s: claimed by %s and by %s", at, was, e.Owner)
			}
			claims[at] = e.Owner
		case e.Verb == "completed":
			if completions[e.ID] += int(e.Count); completions[e.ID] > 1 {
				t.Errorf("%s was completed twice", e.ID)
			}
		case e.Verb == "renewed":
			beats[fmt.Sprint(e.ID, " ", e.Owner, e.Fence)] += e.Count
		}
	}
	for _, s := range savers {
		id := strings.TrimSuffix(s.name, ".yaml")
		for k, asked := range s.asked {
			if got := beats[id+" "+k]; got > int64(asked) {
				t.Errorf("%s: %d heartbeats of %s were carried out, %d were reported", id, got, k, asked)
			}
		}
	}
	return killed, saves, dones
}
