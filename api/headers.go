package api

import (
	"crypto/rand"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/warmroute/warmroute/scheduler"
)

// idleWorker is below uvicorn's 5 s, so that the router closes an idle
// connection before the worker does while a request is on its way to it.
const idleWorker = 4 * time.Second

// newClient is the pool of connections to the workers. It follows no redirect,
// takes no proxy from the environment and decompresses nothing.
func newClient(t Timeouts) *http.Client {
	dialer := &net.Dialer{Timeout: t.Connect, KeepAlive: 15 * time.Second} // Go sets TCP_NODELAY
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:         dialer.DialContext,
			TLSHandshakeTimeout: t.Connect,
			DisableCompression:  true,
			MaxIdleConnsPerHost: 1024,
			IdleConnTimeout:     idleWorker,
			ReadBufferSize:      32 << 10,
			WriteBufferSize:     32 << 10,
		},
	}
}

// toWorker are the request headers that go on to a worker, beside those that
// begin with nativePrefix. Everything else stays here: credentials, cookies,
// hop-by-hop headers, and any that could steer another proxy.
func toWorker() []string {
	return []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Baggage", "Content-Encoding", "Content-Type",
		"Traceparent", "Tracestate", "User-Agent", "X-Request-Id", "X-Session-Id",
	}
}

const nativePrefix = "X-Amzn-Sagemaker-"

func copyRequestHeaders(to, from http.Header, r *request) {
	for _, name := range toWorker() {
		if values := from[name]; len(values) > 0 {
			to[name] = values
		}
	}
	for name, values := range from {
		if strings.HasPrefix(name, nativePrefix) {
			to[name] = values
		}
	}
	to.Set("X-Request-Id", r.id)
}

// hopByHop are the headers of one connection (RFC 9110, section 7.6.1), and
// those that would name the worker's software or contradict the receipt.
func hopByHop() []string {
	return []string{
		"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
		"Server", "Date", "X-Request-Id",
	}
}

func copyResponseHeaders(to, from http.Header) {
	drop := map[string]bool{}
	for _, name := range hopByHop() {
		drop[name] = true
	}
	for _, line := range from["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			drop[http.CanonicalHeaderKey(strings.TrimSpace(name))] = true
		}
	}
	for name, values := range from {
		if !drop[name] && !strings.HasPrefix(name, "X-Warmroute-") {
			to[name] = values
		}
	}
	if isStream(from) {
		// A proxy before us must not gather the stream.
		setDefault(to, "X-Accel-Buffering", "no")
		setDefault(to, "Cache-Control", "no-cache")
	}
}

func setDefault(h http.Header, name, value string) {
	if h.Get(name) == "" {
		h.Set(name, value)
	}
}

func isStream(h http.Header) bool {
	return strings.HasPrefix(h.Get("Content-Type"), "text/event-stream")
}

// setReceipt says where a request went and why.
func (s *Server) setReceipt(h http.Header, r *request, l *scheduler.Lease) {
	if s.o.HideReceipt {
		return
	}
	h.Set("X-Warmroute-Instance", l.Instance.Name())
	h.Set("X-Warmroute-Rule", string(l.Rule))
	h.Set("X-Warmroute-Matched-Tokens", strconv.Itoa(l.MatchedTokens))
	h.Set("X-Warmroute-Prompt-Tokens", strconv.Itoa(r.prompt.tokens))
}

// maxRequestID is the longest request id that is taken over.
const maxRequestID = 128

// validRequestID accepts letters, digits and . _ : - alone: the id goes into
// logs and headers.
func validRequestID(s string) bool {
	if s == "" || len(s) > maxRequestID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		digit := c >= '0' && c <= '9'
		if !letter && !digit && c != '.' && c != '_' && c != ':' && c != '-' {
			return false
		}
	}
	return true
}

// requestID is the client's, where it has a sound one, or a new one. It goes to
// the worker and back to the client.
func requestID(c echo.Context) string {
	id := c.Request().Header.Get("X-Request-Id")
	if !validRequestID(id) {
		id = rand.Text()
	}
	c.Response().Header().Set("X-Request-Id", id)
	return id
}
