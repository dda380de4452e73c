package api

import (
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/scheduler"
	"github.com/warmroute/warmroute/tokenize"
)

// Options are a server's parts. Scheduler, Models, Logger and Registry must be
// given.
type Options struct {
	Scheduler *scheduler.Scheduler
	// Models is the tokenizer of an endpoint by its name, nil for none: its
	// prompts are then matched by their raw bytes.
	Models   func(endpoint string) *tokenize.Model
	Logger   *slog.Logger
	Registry *prometheus.Registry
	// Ready says whether new requests are welcome, and why not.
	Ready func() (ok bool, why string)
	// Tree is what the status says of the tree; it is written as JSON.
	Tree func() any
	// Sample, if given, is told of each request that was served and matched by
	// tokens, and may keep the body. It must not wait.
	Sample  func(endpoint, workerURL string, kind tokenize.Kind, body []byte)
	Version string

	// WorkerKey is sent to the workers as a bearer token, "" for none. A
	// client's own credentials never reach them.
	WorkerKey    string
	HideReceipt  bool  // no X-Warmroute-… headers
	MaxBodyBytes int64 // 0: 25 MiB
	Retries      int   // further instances to try before the first byte
	Timeouts     Timeouts
	Now          func() time.Time // nil: time.Now
}

// Timeouts bound what the client and a worker may take; 0 takes the default in
// brackets.
type Timeouts struct {
	ReadBody  time.Duration // [1 min] the client's whole body
	Connect   time.Duration // [2 s] connection made
	FirstByte time.Duration // [10 min] head of the answer
	Chunk     time.Duration // [2 min] between two chunks, and for the client to take one
}

const defaultMaxBody = 25 << 20

// Server is the HTTP side of the router.
type Server struct {
	o       Options
	client  *http.Client // to the workers
	started time.Time
	metrics *metrics
	prompts prompts
	buffers sync.Pool // of *[copyBuffer]byte
	public  *echo.Echo
	admin   *echo.Echo
}

// New makes a server. Its handlers are [Server.Public] and [Server.Admin].
func New(o Options) (*Server, error) {
	if o.Scheduler == nil || o.Models == nil || o.Logger == nil || o.Registry == nil {
		return nil, errors.New("api: Scheduler, Models, Logger and Registry must be given")
	}
	if o.MaxBodyBytes == 0 {
		o.MaxBodyBytes = defaultMaxBody
	}
	if o.Timeouts.ReadBody == 0 {
		o.Timeouts.ReadBody = time.Minute
	}
	if o.Timeouts.Connect == 0 {
		o.Timeouts.Connect = 2 * time.Second
	}
	if o.Timeouts.FirstByte == 0 {
		o.Timeouts.FirstByte = 10 * time.Minute
	}
	if o.Timeouts.Chunk == 0 {
		o.Timeouts.Chunk = 2 * time.Minute
	}
	if o.Ready == nil {
		o.Ready = func() (bool, string) { return true, "" }
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{o: o, client: newClient(o.Timeouts), started: o.Now(), metrics: newMetrics(o.Registry)}
	s.public, s.admin = s.publicRoutes(), s.adminRoutes()
	return s, nil
}

// Public is the API that clients use.
func (s *Server) Public() http.Handler { return s.public }

// Admin is metrics, health and status: for a listener of its own.
func (s *Server) Admin() http.Handler { return s.admin }

// Close drops idle connections to the workers.
func (s *Server) Close() { s.client.CloseIdleConnections() }

func (s *Server) publicRoutes() *echo.Echo {
	e := newEcho(openAIErrors)
	e.POST("/v1/chat/completions", s.openAI(chatRoute()))
	e.POST("/v1/completions", s.openAI(completionRoute()))
	for _, path := range []string{"/v1/embeddings", "/v1/responses", "/v1/rerank", "/v1/score"} {
		e.POST(path, s.openAI(route{path: path}))
	}
	e.Match(reading(), "/v1/models", s.models)
	e.POST("/endpoints/:name/invocations", s.invocations)
	s.healthRoutes(e)
	return e
}

// reading are the methods that only read: some balancers probe with HEAD.
func reading() []string { return []string{http.MethodGet, http.MethodHead} }

func (s *Server) healthRoutes(e *echo.Echo) {
	for _, path := range []string{"/health", "/healthz", "/livez"} {
		e.Match(reading(), path, alive)
	}
	e.Match(reading(), "/readyz", s.ready)
}

// newEcho is an echo whose own errors are written by write.
func newEcho(write func(echo.Context, *apiError)) *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(discard{})
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		if c.Response().Committed {
			return
		}
		var own *apiError
		var theirs *echo.HTTPError
		switch {
		case errors.As(err, &own):
		case errors.As(err, &theirs) && theirs.Code == http.StatusMethodNotAllowed:
			own = newError(http.StatusMethodNotAllowed, codeMethod, "%s is not allowed on this route", c.Request().Method)
		case errors.As(err, &theirs) && theirs.Code == http.StatusNotFound:
			own = newError(http.StatusNotFound, codeRoute, "there is no such route; see docs/api.md for those that are")
		default:
			own = newError(http.StatusInternalServerError, codeInternal, "the router failed")
		}
		if isNative(c.Request().URL.Path) {
			nativeErrors(c, own)
			return
		}
		write(c, own)
	}
	return e
}

// discard drops what echo would log: the server logs for itself.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
