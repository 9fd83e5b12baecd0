package console

import (
	"bufio"
	"context"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/leasehold/controller/timeline"
	"leasehold.dev/leasehold/store"
)

// fake is a source that shows what it is told.
type fake struct {
	mu      sync.Mutex
	jobs    []*Job
	events  []store.Event
	follows int
	tell    chan struct{}
}

func newFake(jobs ...*Job) *fake { return &fake{jobs: jobs, tell: make(chan struct{}, 1)} }

func (f *fake) Follow(ctx context.Context, show func(*Snapshot)) error {
	f.mu.Lock()
	f.follows++
	f.mu.Unlock()
	for {
		f.mu.Lock()
		s := &Snapshot{Mistakes: []string{"<b>broken.yaml:3</b>: cannot be parsed"}}
		for _, j := range f.jobs {
			next := *j
			next.Detail = func() Detail {
				return Detail{Spec: "spec: </pre><script>", Status: "status: {}", Timeline: timeline.Input{ID: j.ID, Workers: []string{"<i>"}}}
			}
			s.Jobs = append(s.Jobs, &next)
		}
		f.mu.Unlock()
		show(s)
		select {
		case <-f.tell:
		case <-ctx.Done():
			return nil
		}
	}
}

func (f *fake) History(context.Context, string) ([]store.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.events, nil
}

// change makes the jobs others, and tells of it.
func (f *fake) change(how func()) {
	f.mu.Lock()
	how()
	f.mu.Unlock()
	select {
	case f.tell <- struct{}{}:
	default:
	}
}

func job(name, state string) *Job {
	return &Job{ID: name, Key: name, Namespace: "default", Name: name, Where: name + ".yaml:1", State: state, Tone: Held,
		Labels: []Pair{{"app", "x-" + name}}}
}

func start(t *testing.T, f *fake, a Access) *httptest.Server {
	ctx, cancel := context.WithCancel(context.Background())
	s := httptest.NewServer(Guard(a, New(ctx, f, Options{Title: "jobs", Version: "v0"})))
	t.Cleanup(func() {
		cancel()
		s.Close()
	})
	return s
}

func get(t *testing.T, url string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestHeaders(t *testing.T) {
	s := start(t, newFake(job("a", "Leased")), Access{})
	for _, path := range []string{"/", "/job?id=a", "/job?id=none", "/part/jobs", "/console.css", "/console.js", "/icon.svg", "/nothing"} {
		resp, body := get(t, s.URL+path)
		want := http.StatusOK
		if strings.Contains(path, "no") && path != "/icon.svg" && !strings.HasPrefix(path, "/console") {
			want = http.StatusNotFound
		}
		if resp.StatusCode != want {
			t.Errorf("%s: %s", path, resp.Status)
		}
		for name, value := range map[string]string{
			"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store", "Access-Control-Allow-Origin": "",
		} {
			if got := resp.Header.Get(name); got != value {
				t.Errorf("%s: %s: %q", path, name, got)
			}
		}
		// Nothing that the policy would block, and nothing from elsewhere.
		for _, bad := range []string{" style=", " onclick=", "<style", "javascript:", "http://", "https://", "src=\"//", "href=\"//"} {
			if strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/2000/svg", ""), bad) {
				t.Errorf("%s contains %s", path, bad)
			}
		}
	}
}

func TestWhoMayAsk(t *testing.T) {
	s := start(t, newFake(), Access{Host: func(name string) bool { return name == "jobs.example.com" }})
	for _, c := range []struct {
		headers []string
		want    int
	}{
		{nil, 200},
		{[]string{"Host", "localhost:1234"}, 200},
		{[]string{"Host", "[::1]:80"}, 200},
		{[]string{"Host", "jobs.example.com"}, 200},
		{[]string{"Host", "evil.example.com"}, 421},
		{[]string{"Host", "127.0.0.1.evil.example.com"}, 421},
		{[]string{"Host", "localhost.evil.example.com:8080"}, 421},
		{[]string{"Host", "192.0.2.1"}, 421},
		{[]string{"Origin", s.URL}, 200},
		{[]string{"Origin", "http://evil.example.com"}, 403},
		{[]string{"Origin", "null"}, 403},
		{[]string{"Origin", "http://127.0.0.1:1"}, 403},
		{[]string{"Sec-Fetch-Site", "same-origin"}, 200},
		{[]string{"Sec-Fetch-Site", "none"}, 200},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"}, 403},
		{[]string{"Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "cors", "Sec-Fetch-Dest", "empty"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"}, 403},
		{[]string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"}, 200}, // a link
	} {
		if resp, _ := get(t, s.URL+"/", c.headers...); resp.StatusCode != c.want {
			t.Errorf("%v: %s", c.headers, resp.Status)
		}
	}
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		r, _ := http.NewRequest(method, s.URL+"/", nil)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", method, resp.Status)
		}
	}
}

func TestToken(t *testing.T) {
	s := start(t, newFake(), Access{Token: "correct horse battery"})
	basic := func(password string) string {
		r, _ := http.NewRequest("GET", "/", nil)
		r.SetBasicAuth("anybody", password)
		return r.Header.Get("Authorization")
	}
	for header, want := range map[string]int{
		"": 401, "Bearer correct horse battery": 200, "Bearer correct horse": 401, "Bearer ": 401,
		basic("correct horse battery"): 200, basic("wrong"): 401, "correct horse battery": 401,
	} {
		resp, body := get(t, s.URL+"/", "Authorization", header)
		if resp.StatusCode != want || want == 401 && (strings.Contains(body, "Jobs") || resp.Header.Get("WWW-Authenticate") == "") {
			t.Errorf("%q: %s", header, resp.Status)
		}
	}
}

// What comes from a manifest or another program's row is escaped wherever it goes.
func TestEscaping(t *testing.T) {
	const evil = `"><script>alert(1)</script><img src=x onerror=alert(1)>'` + "\u202e"
	j := job("a", evil)
	result := evil
	j.ID, j.Key, j.Name, j.Namespace, j.Where, j.Note, j.Owner, j.Clock, j.UntilText, j.Result = evil, evil, evil, evil, evil, evil, evil, evil, evil, &result
	j.Labels, j.Errors = []Pair{{evil, evil}}, []string{evil}
	f := newFake(j)
	f.events = []store.Event{{Verb: evil, Reason: evil, Owner: evil, Message: evil, By: evil, Count: 2}}
	s := start(t, f, Access{})
	_, list := get(t, s.URL+"/?q=&sort="+"%22%3E%3Cscript%3E")
	_, link, ok := strings.Cut(list, `<a href="/job?`)
	if !ok {
		t.Fatal(list)
	}
	link, _, _ = strings.Cut(link, `"`)
	link = html.UnescapeString(link)
	_, page := get(t, s.URL+"/job?"+link)
	if !strings.Contains(page, "&lt;script&gt;alert(1)") {
		t.Error(page)
	}
	_, state := get(t, s.URL+"/?state=%22%3E%3Cscript%3E&q=%22%3E%3Cscript%3E")
	for name, body := range map[string]string{"list": list, "page": page, "state": state} {
		body = strings.Replace(body, `<script src="/console.js" defer></script>`, "", 1)
		if strings.Contains(body, "<script") || strings.Contains(body, "<img src=x") || strings.Contains(body, "<b>broken") {
			t.Errorf("%s: markup got through:\n%s", name, body)
		}
	}
}

func TestFilterAndSort(t *testing.T) {
	f := newFake()
	for i := range 450 {
		j := job(fmt.Sprintf("job-%03d", i), []string{"Leased", "Complete", "Waiting"}[i%3])
		j.Fence = int64(1000 - i)
		f.jobs = append(f.jobs, j)
	}
	s := start(t, f, Access{})
	for query, want := range map[string]string{
		"":                           "job-000 100 450 of 450",
		"page=4":                     "job-400 50 450 of 450",
		"page=99":                    "job-400 50 450 of 450",
		"page=-1":                    "job-000 100 450 of 450",
		"q=job-01":                   "job-010 10 10 of 450",
		"q=JOB-01+state:complete":    "job-010 4 4 of 450",
		"q=app%3Dx-job-449":          "job-449 1 1 of 450",
		"state=Waiting&sort=-name":   "job-449 100 150 of 450",
		"sort=fence":                 "job-449 100 450 of 450",
		"sort=-state&q=job-00":       "job-002 10 10 of 450",
		"q=nothing-like-it&state=No": " 0 0 of 450",
	} {
		_, body := get(t, s.URL+"/part/jobs?"+query)
		first := ""
		if _, after, ok := strings.Cut(body, `<a href="/job?id=`); ok {
			first, _, _ = strings.Cut(after, `"`)
		}
		_, count, _ := strings.Cut(body, `data-count="`)
		count, _, _ = strings.Cut(count, " jobs")
		if got := fmt.Sprintf("%s %d %s", first, strings.Count(body, `<th scope="row"`), count); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// next reads a message of a stream.
func next(t *testing.T, r *bufio.Reader) (event, data string) {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimRight(line, "\n")
		switch {
		case line == "" && event != "":
			return event, data
		case strings.HasPrefix(line, "event: "):
			event = line[7:]
		case strings.HasPrefix(line, "data: "):
			data += line[6:] + "\n"
		}
	}
}

func TestLive(t *testing.T) {
	f := newFake(job("a", "Leased"))
	s := start(t, f, Access{})
	follow := func(path string) (*bufio.Reader, *http.Response) {
		resp, err := http.Get(s.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
			t.Fatal(kind)
		}
		return bufio.NewReader(resp.Body), resp
	}
	list, _ := follow("/live/jobs?q=a")
	page, _ := follow("/live/job?id=a")
	if event, data := next(t, list); event != "part" || !strings.Contains(data, "Leased") {
		t.Error(event, data)
	}
	if event, data := next(t, page); event != "part" || !strings.Contains(data, "Nothing has happened yet") {
		t.Error(event, data)
	}
	// A refusal is in the history alone: it concerns the page of its job.
	f.change(func() {
		f.events = append(f.events, store.Event{Verb: "complete", Reason: store.StaleFence, Owner: "b", Fence: 1, Count: 1, At: time.Unix(1e9, 0), Message: "a\rb"})
	})
	if _, data := next(t, page); !strings.Contains(data, "StaleFence") {
		t.Error(data)
	}
	f.change(func() { f.jobs = []*Job{job("a", "Complete")} })
	if _, data := next(t, list); !strings.Contains(data, "Complete") || strings.Contains(data, "StaleFence") {
		t.Error(data)
	}
	if _, data := next(t, page); !strings.Contains(data, "Complete") {
		t.Error(data)
	}
	f.change(func() { f.jobs = nil })
	if _, data := next(t, page); !strings.Contains(data, "not there any more") {
		t.Error(data)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.follows != 1 {
		t.Errorf("the source is followed %d times", f.follows)
	}
}
