package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// Access says who may ask.
type Access struct {
	// Host reports whether a name in a Host header, without its port, is one of ours. Loopback names
	// always are.
	Host func(name string) bool
	// Token, if set, must come with every request: as a bearer token, or as the password of basic
	// authentication, for which browsers ask.
	Token string
}

const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// Guard answers what does not come from us or a person: pages of other origins, names that have been
// pointed at this machine, requests without the token, and methods that could change anything.
func Guard(a Access, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "this is read-only: GET and HEAD are all there is", http.StatusMethodNotAllowed)
		case !a.ours(r.Host):
			http.Error(w, "the Host header names another machine", http.StatusMisdirectedRequest)
		case foreign(r):
			http.Error(w, "the request comes from a page of another origin", http.StatusForbidden)
		case !a.knows(r):
			h.Set("WWW-Authenticate", `Basic realm="leasehold: any name, the token as password", charset="UTF-8"`)
			http.Error(w, "a token is needed: as a bearer token, or as the password", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (a Access) ours(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.Trim(name, "[]"), ".")
	if name == "" {
		return false
	}
	return Loopback(name) || a.Host != nil && a.Host(name)
}

// Loopback reports whether a name means this machine alone.
func Loopback(name string) bool {
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip := net.ParseIP(name)
	return ip != nil && ip.IsLoopback()
}

// foreign reports whether a page of another origin asks. Somebody who follows a link from one does
// not count.
func foreign(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" {
		u, err := url.Parse(origin)
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		if err != nil || u.Scheme != scheme || !strings.EqualFold(u.Host, r.Host) {
			return true
		}
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return false
	}
	return r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document"
}

func (a Access) knows(r *http.Request) bool {
	if a.Token == "" {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		if _, given, ok = r.BasicAuth(); !ok {
			return false
		}
	}
	// Of equal length, so that the comparison tells nothing about the token's.
	x, y := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(a.Token))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
