package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"leasehold.dev/leasehold/controller/console"
	"leasehold.dev/leasehold/controller/metrics"
	"leasehold.dev/leasehold/store"
	"leasehold.dev/leasehold/store/sqlite"
)

// serving is what run serves beside its work.
type serving struct {
	listen, cert, key, tokenFile string
	pprof                        bool

	listener net.Listener
	access   console.Access
	metrics  *metrics.Metrics
	ready    atomic.Bool
}

func (s *serving) flags(f *pflag.FlagSet) {
	f.StringVar(&s.listen, "listen", "", "serve the console at /, /metrics, /healthz and /readyz on this `address`, such as 127.0.0.1:8080")
	f.StringVar(&s.cert, "tls-cert", "", "certificate `file`; with --tls-key, serve https")
	f.StringVar(&s.key, "tls-key", "", "`file` of the certificate's key")
	f.StringVar(&s.tokenFile, "token-file", "", "demand the token in this `file`: as a bearer token, or as the password in a browser")
	f.BoolVar(&s.pprof, "pprof", false, "serve profiles at /debug/pprof/, too")
}

// shortToken is the length that a token needs.
const shortToken = 16

// open listens, where that is wanted. An address that others can reach needs TLS and a token.
func (s *serving) open(ctx context.Context) error {
	if s.listen == "" {
		if s.cert != "" || s.key != "" || s.tokenFile != "" || s.pprof {
			return usageError("--tls-cert, --tls-key, --token-file and --pprof belong to --listen")
		}
		return nil
	}
	host, _, err := net.SplitHostPort(s.listen)
	if err != nil {
		return usageError("--listen: Invalid value: %q: must be HOST:PORT, such as 127.0.0.1:8080", s.listen)
	}
	if (s.cert == "") != (s.key == "") {
		return usageError("--tls-cert and --tls-key: the one needs the other")
	}
	if !console.Loopback(host) && (s.cert == "" || s.tokenFile == "") {
		return usageError("--listen: %s can be reached from elsewhere: that needs --tls-cert, --tls-key and --token-file; or listen on 127.0.0.1", s.listen)
	}
	if s.tokenFile != "" {
		token, err := os.ReadFile(s.tokenFile)
		if err != nil {
			return err
		}
		s.access.Token = string(bytes.TrimSpace(token))
		if len(s.access.Token) < shortToken {
			return usageError("--token-file: the token in %s is shorter than %d characters", s.tokenFile, shortToken)
		}
	}
	var config *tls.Config
	if s.cert != "" {
		c := &certificate{cert: s.cert, key: s.key}
		if _, err := c.get(nil); err != nil {
			return err
		}
		config = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get, NextProtos: []string{"h2", "http/1.1"}}
		s.access.Host = c.names
	}
	var lc net.ListenConfig
	if s.listener, err = lc.Listen(ctx, "tcp", s.listen); err != nil {
		return err
	}
	if config != nil {
		s.listener = tls.NewListener(s.listener, config)
	}
	s.metrics = metrics.New(version())
	return nil
}

func (s *serving) close() {
	if s.listener != nil {
		s.listener.Close()
	}
}

func (s *serving) url() string {
	scheme := "http"
	if s.cert != "" {
		scheme = "https"
	}
	return scheme + "://" + s.listener.Addr().String() + "/"
}

// run serves until ctx is done.
func (s *serving) run(ctx context.Context, g *globals, dir string, db *sqlite.DB, logger *slog.Logger) error {
	server := &http.Server{
		Handler:           s.handler(ctx, g, dir, db),
		ReadHeaderTimeout: 10 * time.Second, // no ReadTimeout: it would end a stream
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          log.New(serverLog{logger}, "", 0),
	}
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			server.Close()
		}
	})()
	err := server.Serve(s.listener)
	if errors.Is(err, http.ErrServerClosed) {
		<-stopped
		return nil
	}
	return fmt.Errorf("serving %s: %w", s.url(), err)
}

// serverLog tells what a connection did wrong to those who want to know more.
type serverLog struct{ *slog.Logger }

func (l serverLog) Write(p []byte) (int, error) {
	l.Debug(string(bytes.TrimSpace(p)))
	return len(p), nil
}

func (s *serving) handler(ctx context.Context, g *globals, dir string, db *sqlite.DB) http.Handler {
	inner := http.NewServeMux()
	inner.Handle("/metrics", s.metrics.Handler())
	if s.pprof {
		inner.HandleFunc("/debug/pprof/", pprof.Index)
		inner.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		inner.HandleFunc("/debug/pprof/profile", pprof.Profile)
		inner.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		inner.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	inner.Handle("/", console.New(ctx, newConsoleSource(g, db), console.Options{Title: dir, Version: version()}))

	// Probes come by address and without a token; what they learn is a word.
	outer := http.NewServeMux()
	outer.HandleFunc("GET /healthz", probe(func(r *http.Request) error { return living(r.Context(), db) }))
	outer.HandleFunc("GET /readyz", probe(func(r *http.Request) error {
		if !s.ready.Load() {
			return errors.New("reading the manifests")
		}
		return answers(r.Context(), db)
	}))
	outer.Handle("/", console.Guard(s.access, inner))
	return outer
}

func probe(check func(*http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			http.Error(w, "not ok", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}

// probePatience is how long the store has to answer.
const probePatience = 2 * time.Second

func answers(ctx context.Context, db *sqlite.DB) error {
	ctx, cancel := context.WithTimeout(ctx, probePatience)
	defer cancel()
	_, err := db.Stamp(ctx)
	return err
}

// living reports what only a restart can mend. A store that others have locked is not of that kind.
func living(ctx context.Context, db *sqlite.DB) error {
	if err := answers(ctx, db); errors.Is(err, store.ErrLost) || errors.Is(err, store.ErrClosed) {
		return err
	}
	return nil
}

// certificate is read again when it has been renewed.
type certificate struct {
	cert, key string

	mu     sync.Mutex
	loaded *tls.Certificate
	at     time.Time
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	info, err := os.Stat(c.cert)
	if err == nil && c.loaded != nil && info.ModTime().Equal(c.at) {
		return c.loaded, nil
	}
	if err == nil {
		var next tls.Certificate
		if next, err = tls.LoadX509KeyPair(c.cert, c.key); err == nil {
			c.loaded, c.at = &next, info.ModTime()
		}
	}
	if c.loaded != nil {
		return c.loaded, nil // the two files are being replaced
	}
	return nil, err
}

// names reports whether a name is in the certificate.
func (c *certificate) names(name string) bool {
	cert, err := c.get(nil)
	return err == nil && cert.Leaf != nil && cert.Leaf.VerifyHostname(name) == nil
}
