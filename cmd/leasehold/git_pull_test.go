package main

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Pulls of the lines next to status, while status is written 5 to 20 times a second into the very
// files that are pulled. At most 1 of 50 may refuse, and none may have begun.
func TestGitPullUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("50 pulls take a while")
	}
	for name, args := range map[string][]string{
		"merge":  {"pull", "-q"},
		"rebase": {"pull", "-q", "--rebase"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const jobs, pulls = 10, 50
			files := map[string]string{}
			for i := range jobs {
				files[fmt.Sprintf("j%d.yaml", i)] = liveJob(fmt.Sprintf("j%d", i), 0.5)
			}
			c := newCheckout(t, files).start()
			fences := func() (sum int64) {
				for i := range jobs {
					sum += c.fence(fmt.Sprintf("j%d.yaml", i))
				}
				return sum
			}
			c.until("every job is leased", func() bool { return fences() >= jobs })
			begin, first := time.Now(), fences()
			refused := 0
			for n := range pulls {
				file := fmt.Sprintf("j%d.yaml", n%jobs)
				c.push(file, region(n/jobs), region(n/jobs+1))
				before := fences()
				c.until("status is written", func() bool { return fences() >= before+3 })
				if name == "rebase" && n%5 == 0 { // something to rebase
					c.write(c.dir+"/notes", fmt.Sprint(n))
					c.git("add", "notes")
					c.insist("commit", "-q", "-m", "notes")
				}
				refused += c.insist(args...)
				if got := c.read(file); !strings.Contains(got, region(n/jobs+1)) {
					t.Fatalf("pull %d did not arrive:\n%s", n, got)
				}
			}
			rate := float64(fences()-first) / time.Since(begin).Seconds()
			t.Logf("%d of %d pulls refused, at %.1f status writes a second", refused, pulls, rate)
			if refused > 1 {
				t.Errorf("%d of %d pulls refused, at %.1f status writes a second", refused, pulls, rate)
			}
		})
	}
}

func region(n int) string {
	return "    region: " + []string{"eu", "us", "ap", "sa", "af", "me", "oc"}[n] + "\n"
}
