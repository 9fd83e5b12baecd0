package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// heard is an output that can be read while it is written, and waited for.
type heard struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
	return h.b.Write(p)
}

func (h *heard) until(t *testing.T, pattern string) []string {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		h.mu.Lock()
		text := h.b.String()
		h.mu.Unlock()
		if m := regexp.MustCompile(pattern).FindStringSubmatch(text); m != nil {
			return m
		}
		select {
		case <-h.more:
		case <-deadline:
			t.Fatalf("waited in vain for %s in\n%s", pattern, text)
		}
	}
}

// running runs a command until the test ends, and returns what it says and how to stop it.
func running(t *testing.T, args ...string) (says *heard, stop func() int) {
	says = &heard{more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, args, streams{In: strings.NewReader(""), Out: io.Discard, Err: says}) }()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { stop() })
	return says, stop
}

// certify writes a certificate for 127.0.0.1 and jobs.example.com, and returns its files.
func certify(t *testing.T) (cert, key string, pool *x509.CertPool) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{"jobs.example.com"}, IPAddresses: []net.IP{net.ParseIP("127.0.0.1")}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for path, data := range map[string][]byte{cert: text, key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool = x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return cert, key, pool
}

// An address that others can reach is served with TLS and a token.
func TestServeTLS(t *testing.T) {
	cert, key, pool := certify(t)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("0123456789abcdef0123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	says, stop := running(t, "run", t.TempDir(), "--listen", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key, "--token-file", token)
	port := says.until(t, `the console is at https://\S+:(\d+)/`)[1]
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	ask := func(path, host, token string) int {
		t.Helper()
		r, err := http.NewRequest("GET", "https://127.0.0.1:"+port+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, c := range []struct {
		path, host, token string
		want              int
	}{
		{"/", "", "", 401}, {"/metrics", "", "", 401}, {"/healthz", "", "", 200}, {"/debug/pprof/", "", "0123456789abcdef0123", 404},
		{"/", "", "0123456789abcdef0123", 200}, {"/metrics", "", "0123456789abcdef0123", 200},
		{"/", "jobs.example.com", "0123456789abcdef0123", 200}, {"/", "other.example.com", "0123456789abcdef0123", 421},
	} {
		if got := ask(c.path, c.host, c.token); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
	client.CloseIdleConnections()
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// A service manager hears when it is ready, that it lives, and when it stops.
func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Skip("unix datagrams: " + err.Error())
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", "")
	says, stop := running(t, "run", t.TempDir(), "--listen", "127.0.0.1:0", "--pprof")
	heard := map[string]bool{}
	hear := func(want string) {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(30 * time.Second))
		for buf := make([]byte, 1000); !heard[want]; {
			n, err := socket.Read(buf)
			if err != nil {
				t.Fatalf("%s: %v", want, err)
			}
			heard[string(buf[:n])] = true
		}
	}
	hear("READY=1")
	hear("WATCHDOG=1")
	url := says.until(t, `the console is at (http://127\.0\.0\.1:\d+)/`)[1]
	for _, path := range []string{"/readyz", "/healthz", "/", "/metrics", "/debug/pprof/goroutine?debug=1"} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
	// A page that follows what happens does not hold up the end.
	live, err := http.Get(url + "/live/jobs")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Body.Close()
	go func() { _, _ = io.Copy(io.Discard, live.Body) }()
	began := time.Now()
	if code := stop(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	if took := time.Since(began); took > 2500*time.Millisecond {
		t.Errorf("it took %v to stop", took)
	}
	hear("STOPPING=1")
}
