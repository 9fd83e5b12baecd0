package guard

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// Header carries the fence of a request.
const Header = "Fencing-Token"

// Handler checks the fence of each request that writes, within a transaction that lasts until next has
// answered: next writes in it, by [Tx]. The transaction is committed if next answers with a status
// below 400, and only then is that answer sent; otherwise it is rolled back, the fence with it.
//
// A request is refused with 412 Precondition Failed where its fence is lower than the highest seen,
// with 428 Precondition Required where it has none, and with 400 where that is not a single whole
// number of 1 or more. GET, HEAD, OPTIONS and TRACE pass without a fence, and without a transaction.
type Handler struct {
	DB       *sql.DB
	Guard    Guard
	TxOpts   *sql.TxOptions
	Resource func(*http.Request) string // what is written to; nil: the path
	Next     http.Handler
	// Fault is told of errors of the database, which are answered with 500. May be nil.
	Fault func(*http.Request, error)
}

type txKey struct{}

// Tx returns the transaction of a request that [Handler] has let in, or nil.
func Tx(ctx context.Context) *sql.Tx {
	tx, _ := ctx.Value(txKey{}).(*sql.Tx)
	return tx
}

// Token reads the fence of a request. status is what to answer if there is an error.
func Token(r *http.Request) (fence int64, status int, err error) {
	values := r.Header.Values(Header)
	switch len(values) {
	case 0:
		return 0, http.StatusPreconditionRequired, fmt.Errorf("the request needs a %s header: the fence of the lease under which it writes", Header)
	case 1:
	default:
		return 0, http.StatusBadRequest, fmt.Errorf("%s: must be given once", Header)
	}
	text := strings.TrimSpace(values[0])
	fence, err = strconv.ParseInt(text, 10, 64)
	if err != nil || fence < 1 || text[0] == '+' {
		return 0, http.StatusBadRequest, fmt.Errorf("%s: %q: must be a whole number, at least 1", Header, values[0])
	}
	return fence, 0, nil
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		h.Next.ServeHTTP(w, r)
		return
	}
	fence, status, err := Token(r)
	if err != nil {
		http.Error(w, err.Error(), status)
		return
	}
	resource := r.URL.Path
	if h.Resource != nil {
		resource = h.Resource(r)
	}
	tx, err := h.DB.BeginTx(r.Context(), h.TxOpts)
	if err != nil {
		h.fault(w, r, err)
		return
	}
	defer tx.Rollback() // also where next panics
	var stale *StaleError
	switch err := h.Guard.Check(r.Context(), tx, resource, fence); {
	case errors.As(err, &stale):
		http.Error(w, stale.Error(), http.StatusPreconditionFailed)
		return
	case errors.Is(err, ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	case err != nil:
		h.fault(w, r, err)
		return
	}
	answer := &answer{header: http.Header{}}
	h.Next.ServeHTTP(answer, r.WithContext(context.WithValue(r.Context(), txKey{}, tx)))
	if answer.status < 400 {
		if err := tx.Commit(); err != nil {
			h.fault(w, r, err)
			return
		}
	} else if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		h.fault(w, r, err)
		return
	}
	maps.Copy(w.Header(), answer.header)
	if answer.status != 0 {
		w.WriteHeader(answer.status)
	}
	_, _ = w.Write(answer.body.Bytes())
}

func (h *Handler) fault(w http.ResponseWriter, r *http.Request, err error) {
	if h.Fault != nil {
		h.Fault(r, err)
	}
	http.Error(w, "the fence could not be checked", http.StatusInternalServerError)
}

// answer keeps what next writes until the transaction has been committed.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 { // those below announce another one
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}
