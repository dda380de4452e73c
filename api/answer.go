package api

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/warmroute/warmroute/scheduler"
)

// lastWrite bounds how long the word that an answer broke off may take.
const lastWrite = time.Second

// copyBuffer is how much is read from a worker at a time.
const copyBuffer = 32 << 10

// answer sends a worker's answer to the client and says how it ended.
func (s *Server) answer(c echo.Context, r *request, a *attempt) scheduler.Outcome {
	resp, h := a.response, c.Response().Header()
	copyResponseHeaders(h, resp.Header)
	s.setReceipt(h, r, a.lease)
	if r.route.native {
		h.Set("x-Amzn-Invoked-Production-Variant", a.lease.Variant.Name())
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return s.answerError(c, r, a)
	}
	o := newObserver(resp.Header)
	c.Response().WriteHeader(resp.StatusCode)
	err := s.copyAnswer(c, r, a, o)
	s.observe(r, a.lease, o)
	var broken *brokenError
	switch {
	case errors.As(err, &broken):
		s.finish(c, r, a.lease, newError(http.StatusBadGateway, codeTruncated, "the worker's answer broke off"))
		s.abort(c, resp.Header)
	case err != nil:
		s.finish(c, r, a.lease, errGone())
		return scheduler.Cancelled
	}
	s.finish(c, r, a.lease, nil)
	if s.o.Sample != nil && r.prompt.exact {
		s.o.Sample(r.endpoint.Name(), a.lease.Instance.URL(), r.prompt.kind, r.body)
	}
	return scheduler.Served
}

// answerError passes a worker's own error on: as it is, or on the native route
// as a ModelError. Nothing is believed to be cached of it.
func (s *Server) answerError(c echo.Context, r *request, a *attempt) scheduler.Outcome {
	body := a.refused
	if body == nil || len(body) == 64<<10 {
		rest, _ := io.ReadAll(io.LimitReader(a.response.Body, 1<<20)) // what came is what is shown
		body = append(body, rest...)
	}
	c.Response().Header().Del("Content-Length")
	var err error
	if r.route.native {
		c.Response().Header().Del("Content-Encoding")
		err = nativeRefusal(c, a.response.StatusCode, body)
	} else {
		err = c.Blob(a.response.StatusCode, a.response.Header.Get("Content-Type"), body)
	}
	if err != nil {
		s.finish(c, r, a.lease, errGone())
		return scheduler.Failed
	}
	s.finish(c, r, a.lease, nil)
	return scheduler.Failed
}

// brokenError says that the worker's side failed in mid-answer.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return "api: the answer broke off: " + e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// copyAnswer copies the body, each chunk as it comes. A slow client holds the
// worker back by TCP; no more than one buffer is kept here.
func (s *Server) copyAnswer(c echo.Context, r *request, a *attempt, o *observer) error {
	buf, ok := s.buffers.Get().(*[copyBuffer]byte)
	if !ok {
		buf = new([copyBuffer]byte)
	}
	defer s.buffers.Put(buf)
	control := http.NewResponseController(c.Response().Writer)
	flush := a.response.ContentLength < 0
	first := true
	// From here on the silence between chunks counts.
	a.watch.Stop()
	idle := time.AfterFunc(s.o.Timeouts.Chunk, func() { a.cancel(errIdle) })
	defer idle.Stop()
	defer control.SetWriteDeadline(time.Time{}) //nolint:errcheck // the connection may serve another request
	for {
		n, err := a.response.Body.Read(buf[:])
		idle.Stop()
		if n > 0 {
			if first {
				s.metrics.stage("first_byte", s.o.Now().Sub(r.arrived))
				first = false
			}
			if o.see(buf[:n]) {
				a.lease.FirstToken()
				s.metrics.firstToken.WithLabelValues(r.endpoint.Name()).Observe(s.o.Now().Sub(r.arrived).Seconds())
			}
			// An absolute limit for the whole answer would cut long streams.
			_ = control.SetWriteDeadline(s.o.Now().Add(s.o.Timeouts.Chunk)) // not every writer has one
			if _, err := c.Response().Writer.Write(buf[:n]); err != nil {
				return err
			}
			if flush {
				if err := control.Flush(); err != nil {
					return err
				}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && c.Request().Context().Err() != nil:
			return context.Cause(c.Request().Context())
		case err != nil:
			return &brokenError{err}
		}
		idle.Reset(s.o.Timeouts.Chunk)
	}
}

// abort ends an answer that broke off so that it can't be taken for whole: an
// error event on a stream, and the connection is cut. It does not return.
func (s *Server) abort(c echo.Context, h http.Header) {
	if isStream(h) {
		control := http.NewResponseController(c.Response().Writer)
		_ = control.SetWriteDeadline(s.o.Now().Add(lastWrite)) // the last chunk's deadline may be past
		event, err := json.Marshal(openAIBody(newError(http.StatusBadGateway, codeTruncated, "the worker's answer broke off; what came before is incomplete")))
		if err == nil {
			_, _ = c.Response().Writer.Write([]byte("data: " + string(event) + "\n\n")) // the connection is cut next
			_ = control.Flush()
		}
	}
	panic(http.ErrAbortHandler) // net/http's way to cut a connection
}
