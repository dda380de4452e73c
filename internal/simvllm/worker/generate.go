package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"time"

	"github.com/warmroute/warmroute/tokenize"
)

func (w *Worker) generate(kind tokenize.Kind) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		body, fail := readBody(rw, r)
		if fail != nil {
			writeError(rw, fail)
			return
		}
		w.serve(rw, r, kind, body)
	}
}

// serve answers a chat or completion request. However it ends, the engine is
// rid of it.
func (w *Worker) serve(rw http.ResponseWriter, r *http.Request, kind tokenize.Kind, body []byte) {
	arrived := time.Now()
	asked, fail := parse(body)
	if fail != nil {
		writeError(rw, fail)
		return
	}
	j, fail := w.newJob(kind, asked, body)
	if fail != nil {
		writeError(rw, fail)
		return
	}
	t, err := w.runner.submit(j.answers, j.reason, arrived)
	defer w.runner.cancel(t)
	switch {
	case errors.Is(err, errStopped):
		writeError(rw, stopped())
		return
	case isTooLong(err):
		writeError(rw, badRequest("", "The prompt and its answer don't fit into the KV cache."))
		return
	case err != nil:
		writeError(rw, badRequest("", "%v", err))
		return
	}
	a := w.newReply(j, r.Header.Get("X-Request-Id"), arrived)
	if j.stream {
		w.stream(rw, r, a, t.call)
		return
	}
	parts, err := t.all(r.Context())
	switch {
	case errors.Is(err, errStopped):
		writeError(rw, stopped())
	case err != nil: // the client is gone
	default:
		writeJSON(rw, http.StatusOK, a.complete(parts))
	}
}

func (w *Worker) newReply(j *job, requestID string, now time.Time) *reply {
	if requestID == "" {
		requestID = rand.Text()
	}
	prefix := "cmpl-"
	if j.kind == tokenize.Chat {
		prefix = "chatcmpl-"
	}
	return &reply{job: j, id: prefix + requestID, created: now.Unix(), decode: w.o.Tokenizer.Decode}
}

// stream sends the tokens as they come, each as its own event where the client
// keeps up.
func (w *Worker) stream(rw http.ResponseWriter, r *http.Request, a *reply, c *call) {
	s := newEventStream(rw)
	err := s.tokens(r.Context(), a, c)
	switch {
	case err == nil:
	case errors.Is(err, errStopped):
		err = s.send(errorEnvelope{stopped()})
	default:
		return // the client is gone
	}
	if err == nil {
		err = s.done()
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		w.o.Logger.Debug("a stream was cut", "error", err)
	}
}
