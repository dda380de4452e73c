package api

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	"github.com/labstack/echo/v4"
	"github.com/tidwall/gjson"

	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/tokenize"
)

// Headers of Amazon SageMaker Runtime.
const (
	prefixIDHeader = "X-Amzn-SageMaker-Prefix-Aware-Id"
	variantHeader  = "X-Amzn-SageMaker-Target-Variant"
)

// maxPrefixID is the longest prefix id in characters.
const maxPrefixID = 64

// validPrefixID follows Amazon SageMaker Runtime's pattern: 1 to 64 characters,
// the first not a space, the rest printable ASCII.
func validPrefixID(s string) bool {
	if s == "" || len(s) > maxPrefixID || s[0] == ' ' {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// route is one of the routes that go to a worker.
type route struct {
	path   string        // on the worker, and the label of metrics
	prompt bool          // has a prompt to match
	kind   tokenize.Kind // of that prompt
	native bool
}

// request is one request on its way.
type request struct {
	route    route
	id       string // request id
	arrived  time.Time
	sent     []byte // the body as it came
	body     []byte // decoded; the same bytes unless the body was compressed
	json     bool   // body is a JSON object
	stream   bool
	model    string
	salt     string
	prefixID string
	variant  string
	adapter  string
	endpoint *scheduler.Endpoint
	prompt   prompt
}

// readBody reads the body, bounded, and decodes it for routing where it is
// compressed.
func (s *Server) readBody(c echo.Context, r *request) *apiError {
	limit := s.o.MaxBodyBytes
	req := c.Request()
	tooLarge := newError(http.StatusRequestEntityTooLarge, codeTooLarge,
		"the body is over the limit of %d bytes: send less, or raise limits.max_body_bytes", limit)
	if req.ContentLength > limit {
		s.discard(c)
		return tooLarge
	}
	var buf bytes.Buffer
	if req.ContentLength > 0 {
		buf.Grow(int(req.ContentLength) + bytes.MinRead)
	}
	control := http.NewResponseController(c.Response().Writer)
	_ = control.SetReadDeadline(s.o.Now().Add(s.o.Timeouts.ReadBody)) // not every body has one
	_, err := buf.ReadFrom(http.MaxBytesReader(c.Response(), req.Body, limit))
	if !errors.Is(err, os.ErrDeadlineExceeded) { // else the server would wait for the rest before it closes
		_ = control.SetReadDeadline(time.Time{})
	}
	var over *http.MaxBytesError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		c.Response().Header().Set("Connection", "close") // the rest is not read
		return newError(http.StatusRequestTimeout, codeSlow, "the body took longer than %s to come; timeouts.read_body bounds it", s.o.Timeouts.ReadBody)
	case errors.As(err, &over):
		s.discard(c)
		return tooLarge
	case err != nil:
		return newError(http.StatusBadRequest, codeRequest, "the body can't be read to its end")
	}
	r.sent = buf.Bytes()
	r.body = r.sent
	encoding := strings.ToLower(strings.TrimSpace(req.Header.Get("Content-Encoding")))
	if encoding == "" || encoding == "identity" {
		return nil
	}
	r.body, err = decode(encoding, r.sent, limit)
	switch {
	case errors.Is(err, errTooLarge):
		return tooLarge
	case errors.Is(err, errors.ErrUnsupported):
		return newError(http.StatusUnsupportedMediaType, codeEncoding, "Content-Encoding: use gzip, zstd or none")
	case err != nil:
		return newError(http.StatusBadRequest, codeEncoding, "the body is not %s, as its Content-Encoding says", encoding)
	}
	return nil
}

// What is read of a body that is too large: for so long, and so many times the
// limit.
const (
	discardTime  = 5 * time.Second
	discardTimes = 4
)

// discard reads on for a while where a body is too large: a client that is
// still sending would see its connection reset, not the answer.
func (s *Server) discard(c echo.Context) {
	c.Response().Header().Set("Connection", "close")                                                // the rest is not read
	_ = http.NewResponseController(c.Response().Writer).SetReadDeadline(s.o.Now().Add(discardTime)) // not every body has one
	_, _ = io.CopyN(io.Discard, c.Request().Body, discardTimes*s.o.MaxBodyBytes)                    // more is not owed
}

var errTooLarge = errors.New("api: the decoded body is too large")

// decode undoes a Content-Encoding, up to limit bytes.
func decode(encoding string, data []byte, limit int64) ([]byte, error) {
	var plain io.Reader
	switch encoding {
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			return nil, err
		}
		plain = z
	case "zstd":
		z, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
		if err != nil {
			return nil, err
		}
		defer z.Close()
		plain = z
	default:
		return nil, errors.ErrUnsupported
	}
	out, err := io.ReadAll(io.LimitReader(plain, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(out)) > limit {
		return nil, errTooLarge
	}
	return out, nil
}

// readHeaders takes what the headers say of routing.
func (r *request) readHeaders(h http.Header) *apiError {
	if values, ok := h[http.CanonicalHeaderKey(prefixIDHeader)]; ok {
		if len(values) != 1 || !validPrefixID(values[0]) {
			return newError(http.StatusBadRequest, codePrefixID,
				"%s must be 1 to 64 printable ASCII characters, the first not a space", prefixIDHeader).at(prefixIDHeader)
		}
		r.prefixID = values[0]
	}
	r.variant = h.Get(variantHeader)
	return nil
}

// readFields takes what a JSON body says of routing. Later keys win, as in the
// workers' own decoder.
func (r *request) readFields() *apiError {
	if !utf8.Valid(r.body) {
		return newError(http.StatusBadRequest, codeJSON, "the body is not valid UTF-8")
	}
	if !gjson.ValidBytes(r.body) {
		return newError(http.StatusBadRequest, codeJSON, "the body is not valid JSON")
	}
	root := gjson.ParseBytes(r.body)
	if !root.IsObject() {
		return newError(http.StatusBadRequest, codeJSON, "the body must be a JSON object")
	}
	r.json = true
	var fault *apiError
	root.ForEach(func(key, value gjson.Result) bool {
		switch key.String() {
		case "model":
			r.model = value.String()
			if value.Type != gjson.String && !r.route.native {
				fault = newError(http.StatusBadRequest, codeRequest, "model must be a string").at("model")
			}
		case "stream":
			r.stream = value.Type == gjson.True
		case "cache_salt":
			r.salt = value.String()
		case "prompt_cache_key":
			if r.prefixID == "" && value.Type == gjson.String && !r.route.native {
				r.prefixID = value.Str
			}
		}
		return true
	})
	return fault
}

// checkMessages refuses a chat that no worker could take.
func (r *request) checkMessages() *apiError {
	messages := gjson.GetBytes(r.body, "messages")
	if !messages.IsArray() {
		return newError(http.StatusBadRequest, codeRequest, "messages must be an array of at least one message").at("messages")
	}
	count, fault := 0, (*apiError)(nil)
	messages.ForEach(func(_, m gjson.Result) bool {
		if !m.IsObject() {
			fault = newError(http.StatusBadRequest, codeRequest, "messages[%d] must be an object with a role", count).at("messages")
		}
		count++
		return fault == nil
	})
	if fault == nil && count == 0 {
		fault = newError(http.StatusBadRequest, codeRequest, "messages must be an array of at least one message").at("messages")
	}
	return fault
}
