package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/warmroute/warmroute/scheduler"
)

// Reasons for which the router itself ends a request to a worker.
var (
	errFirstByte = errors.New("api: the worker sent no answer in time")
	errIdle      = errors.New("api: the worker fell silent in mid-answer")
)

// attempt is one try on one instance.
type attempt struct {
	lease    *scheduler.Lease
	response *http.Response
	cancel   context.CancelCauseFunc // ends the request to the worker
	watch    *time.Timer             // calls cancel when the worker is too slow
	refused  []byte                  // the body of an error that may be retried, read
}

// forward sends the request to an instance and its answer to the client. A
// failure before the first byte is tried on the next best instance.
func (s *Server) forward(c echo.Context, r *request) error {
	s.readPrompt(r)
	defer s.prompts.release(r)
	s.metrics.stage("prompt", s.o.Now().Sub(r.arrived))
	ask := &scheduler.Request{
		Endpoint: r.endpoint, Variant: r.variant, Adapter: r.adapter, PrefixID: r.prefixID,
		PromptTokens: r.prompt.tokens, Chains: r.prompt.chains,
	}
	for try := 0; ; try++ {
		lease, err := s.o.Scheduler.Acquire(ask, s.o.Now())
		if err != nil {
			fault := newError(http.StatusServiceUnavailable, codeNoWorker, "%s", err.Error())
			s.finish(c, r, nil, fault)
			return fault
		}
		if try == 0 {
			s.metrics.stage("pick", s.o.Now().Sub(r.arrived))
		}
		again, err := s.tryOn(c, r, lease, try < s.o.Retries && s.hasOther(ask, lease))
		if !again {
			return err
		}
		s.metrics.retries.WithLabelValues(r.endpoint.Name()).Inc()
		ask.Exclude = append(ask.Exclude, lease.Instance)
	}
}

// hasOther reports whether a retry could go anywhere.
func (s *Server) hasOther(ask *scheduler.Request, l *scheduler.Lease) bool {
	for _, i := range l.Variant.Instances() {
		tried := i == l.Instance
		for _, x := range ask.Exclude {
			tried = tried || x == i
		}
		if !tried && i.Ready() {
			return true
		}
	}
	return false
}

// tryOn makes one attempt. again says that nothing has reached the client and
// another instance may be tried; the lease has ended in every case.
func (s *Server) tryOn(c echo.Context, r *request, l *scheduler.Lease, mayRetry bool) (again bool, err error) {
	outcome := scheduler.Failed
	defer func() { l.Done(outcome) }() // also when the handler is aborted
	a, err := s.send(c.Request(), r, l)
	if err != nil {
		if c.Request().Context().Err() != nil {
			outcome = scheduler.Cancelled
			s.finish(c, r, l, errGone())
			return false, nil // nobody reads an answer
		}
		s.o.Logger.Warn("an instance failed before its first byte", "request_id", r.id, "endpoint", r.endpoint.Name(), "instance", l.Instance.Name(), "error", err)
		if mayRetry {
			return true, nil
		}
		fault := upstreamFault(err)
		s.setReceipt(c.Response().Header(), r, l)
		s.finish(c, r, l, fault)
		return false, fault
	}
	defer a.close()
	if a.retryable() && mayRetry {
		s.o.Logger.Warn("an instance refused", "request_id", r.id, "endpoint", r.endpoint.Name(), "instance", l.Instance.Name(), "status", a.response.StatusCode)
		return true, nil
	}
	outcome = s.answer(c, r, a)
	return false, nil
}

// errGone stands for a client that left: it is never written.
func errGone() *apiError { return newError(statusClientGone, "client_gone", "the client left") }

// statusClientGone is in logs and metrics alone.
const statusClientGone = 499

// upstreamFault is what the client is told of a worker that can't be reached.
func upstreamFault(err error) *apiError {
	if errors.Is(err, errFirstByte) {
		return newError(http.StatusGatewayTimeout, codeTimeout, "the worker sent no answer in time; timeouts.first_byte bounds it")
	}
	return newError(http.StatusBadGateway, codeUpstream, "no worker could be reached; try again")
}

// send sends the request and waits for the head of the answer.
func (s *Server) send(in *http.Request, r *request, l *scheduler.Lease) (*attempt, error) {
	ctx, cancel := context.WithCancelCause(in.Context())
	a := &attempt{lease: l, cancel: cancel}
	a.watch = time.AfterFunc(s.o.Timeouts.FirstByte, func() { cancel(errFirstByte) })
	url := strings.TrimSuffix(l.Instance.URL(), "/") + r.route.path
	out, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(r.sent))
	if err != nil {
		a.close()
		return nil, fmt.Errorf("make the request to the worker: %w", err)
	}
	copyRequestHeaders(out.Header, in.Header, r)
	if s.o.WorkerKey != "" {
		out.Header.Set("Authorization", "Bearer "+s.o.WorkerKey)
	}
	// Lets Go's transport repeat the request where the worker has just closed an
	// idle connection. Without a value it is not sent.
	out.Header["Idempotency-Key"] = []string{}
	a.response, err = s.client.Do(out) //nolint:bodyclose // the attempt's close does
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errFirstByte) {
			err = cause
		}
		a.close()
		return nil, fmt.Errorf("send to the worker: %w", err)
	}
	a.readRefusal()
	return a, nil
}

// shuttingDown is what vLLM says in a 500 while it drains: its /health is still
// 200 then.
const shuttingDown = "cannot schedule new futures after shutdown"

// readRefusal reads the body of a status that may be retried.
func (a *attempt) readRefusal() {
	switch a.response.StatusCode {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable:
		a.refused, _ = io.ReadAll(io.LimitReader(a.response.Body, 64<<10)) // what came is what is shown
	}
}

// retryable reports whether another instance may do better.
func (a *attempt) retryable() bool {
	switch a.response.StatusCode {
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return true
	case http.StatusInternalServerError:
		return bytes.Contains(a.refused, []byte(shuttingDown))
	}
	return false
}

// close ends the request to the worker, whatever is left of it.
func (a *attempt) close() {
	a.watch.Stop()
	a.cancel(nil)
	if a.response != nil {
		_ = a.response.Body.Close() // nothing is left to read
	}
}
