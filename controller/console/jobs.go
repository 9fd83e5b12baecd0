package console

import (
	"cmp"
	"context"
	"hash/fnv"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// pageSize is how many jobs a page shows: what is shown is sent again when it changes.
const pageSize = 100

// listing is the page of jobs.
type listing struct {
	Filter, State, Sort string
	Total, Matching     int
	Count               string // for those who hear it
	States              []stateLink
	Mistakes            []string
	MoreMistakes        int
	Columns             []column
	Orders              []order
	Rows                []row
	From, To            int
	Previous, Next      string // links; empty: none
}

type stateLink struct {
	State string
	Tone  Tone
	Count int
	Link  string
	On    bool
}

type column struct {
	Title, Link, Sorted string
	Class               string
}

type order struct {
	Key, Title string
	On         bool
}

type row struct {
	*Job
	DOM  string
	Link string
}

// orders are what jobs can be sorted by.
var orders = []struct {
	key, title string
	compare    func(a, b *Job) int
}{
	{"name", "Job", func(a, b *Job) int { return 0 }},
	{"state", "State", func(a, b *Job) int { return cmp.Compare(a.State, b.State) }},
	{"owner", "Owner", func(a, b *Job) int {
		return cmp.Or(cmpBool(a.Owner == "", b.Owner == ""), cmp.Compare(a.Owner, b.Owner))
	}},
	{"fence", "Fence", func(a, b *Job) int { return cmp.Compare(a.Fence, b.Fence) }},
	{"until", "Lease", func(a, b *Job) int {
		return cmp.Or(cmpBool(a.UntilText == "", b.UntilText == ""), cmpBool(a.System, b.System), cmp.Compare(a.Until, b.Until))
	}},
	{"attempts", "Attempts", func(a, b *Job) int { return cmp.Compare(a.Attempts, b.Attempts) }},
	{"file", "File", func(a, b *Job) int { return cmp.Compare(a.Where, b.Where) }},
}

func cmpBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

func byName(a, b *Job) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Where, b.Where))
}

// words is what the filter looks at: a word of it has to be found in there.
func words(j *Job) string {
	parts := []string{j.Namespace + "/" + j.Name, "state:" + j.State, "owner:" + j.Owner, "file:" + j.Where,
		"fence:" + strconv.FormatInt(j.Fence, 10), j.Note}
	for _, l := range j.Labels {
		parts = append(parts, l.Key+"="+l.Value)
	}
	parts = append(parts, j.Errors...)
	return strings.ToLower(strings.Join(parts, "\n"))
}

func (c *Console) jobs(_ context.Context, s *Snapshot, r *http.Request) (any, error) {
	q := r.URL.Query()
	l := &listing{Filter: q.Get("q"), State: q.Get("state"), Sort: q.Get("sort"), Total: len(s.Jobs)}
	const mostMistakes = 20
	l.Mistakes = s.Mistakes[:min(len(s.Mistakes), mostMistakes)]
	l.MoreMistakes = len(s.Mistakes) - len(l.Mistakes)

	var matching []*Job
	counts, tones := map[string]int{}, map[string]Tone{}
	terms := strings.Fields(strings.ToLower(l.Filter))
	for _, j := range s.Jobs {
		if slices.ContainsFunc(terms, func(t string) bool { return !strings.Contains(j.words, t) }) {
			continue
		}
		counts[j.State]++
		tones[j.State] = j.Tone
		if l.State == "" || j.State == l.State {
			matching = append(matching, j)
		}
	}
	l.Matching = len(matching)
	l.Count = thousands(l.Matching) + " of " + thousands(l.Total) + " jobs"
	l.links(q, counts, tones)
	l.sort(matching)

	page, _ := strconv.Atoi(q.Get("page"))
	page = max(0, min(page, (len(matching)-1)/pageSize))
	from, to := page*pageSize, min((page+1)*pageSize, len(matching))
	l.From, l.To = from+1, to
	if page > 0 {
		l.Previous = with(q, "page", strconv.Itoa(page-1))
	}
	if to < len(matching) {
		l.Next = with(q, "page", strconv.Itoa(page+1))
	}
	for _, j := range matching[from:to] {
		w := row{Job: j, DOM: "j" + hash(j.Key)}
		if j.ID != "" {
			w.Link = "/job?" + url.Values{"id": {j.ID}}.Encode()
		}
		l.Rows = append(l.Rows, w)
	}
	return l, nil
}

// links makes what leads to the same jobs in another state or order.
func (l *listing) links(q url.Values, counts map[string]int, tones map[string]Tone) {
	all := 0
	for state, n := range counts {
		all += n
		l.States = append(l.States, stateLink{state, tones[state], n, with(q, "state", state), state == l.State})
	}
	if l.State != "" && counts[l.State] == 0 {
		l.States = append(l.States, stateLink{l.State, Idle, 0, with(q, "state", l.State), true})
	}
	slices.SortFunc(l.States, func(a, b stateLink) int { return cmp.Compare(a.State, b.State) })
	l.States = slices.Insert(l.States, 0, stateLink{"All", "", all, with(q, "state", ""), l.State == ""})
	key, down := strings.CutPrefix(l.Sort, "-")
	for _, o := range orders {
		k := column{Title: o.title, Link: with(q, "sort", o.key), Class: o.key}
		on := o.key == cmp.Or(key, "name")
		if on {
			k.Sorted = "ascending"
			if down {
				k.Sorted = "descending"
			} else {
				k.Link = with(q, "sort", "-"+o.key)
			}
		}
		l.Columns = append(l.Columns, k)
		l.Orders = append(l.Orders, order{o.key, o.title + " ↑", on && !down}, order{"-" + o.key, o.title + " ↓", on && down})
	}
}

func (l *listing) sort(jobs []*Job) {
	key, down := strings.CutPrefix(l.Sort, "-")
	compare := orders[0].compare
	for _, o := range orders {
		if o.key == key {
			compare = o.compare
		}
	}
	slices.SortStableFunc(jobs, func(a, b *Job) int {
		n := compare(a, b)
		if key == "" || key == "name" {
			n = byName(a, b)
		}
		if down {
			n = -n
		}
		return cmp.Or(n, byName(a, b))
	})
}

// with is a link to the same page with one thing otherwise, from its beginning.
func with(q url.Values, key, value string) string {
	next := url.Values{}
	for _, k := range []string{"q", "state", "sort"} {
		if v := q.Get(k); v != "" {
			next.Set(k, v)
		}
	}
	next.Del(key)
	if value != "" && value != "0" {
		next.Set(key, value)
	}
	if len(next) == 0 {
		return "/"
	}
	return "/?" + next.Encode()
}

func hash(s string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return strconv.FormatUint(h.Sum64(), 36)
}
