package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// eventStream writes server-sent events as vLLM does, each flushed at once.
type eventStream struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	buf   bytes.Buffer
	enc   *json.Encoder // to buf
}

func newEventStream(w http.ResponseWriter) *eventStream {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.WriteHeader(http.StatusOK)
	s := &eventStream{w: w, flush: http.NewResponseController(w)}
	s.enc = json.NewEncoder(&s.buf)
	s.enc.SetEscapeHTML(false)
	return s
}

// tokens sends all the tokens of a call and, if asked for, the usage.
func (s *eventStream) tokens(ctx context.Context, a *reply, c *call) error {
	if err := s.flush.Flush(); err != nil { // the headers go ahead of the first token
		return fmt.Errorf("send the headers: %w", err)
	}
	sent := make([]progress, len(a.answers))
	var parts []progress
	for !finished(sent) {
		var err error
		if parts, err = c.next(ctx, parts[:0]); err != nil {
			return err
		}
		for i, now := range parts {
			if now.produced == sent[i].produced {
				continue
			}
			if sent[i].produced == 0 {
				if err := s.opening(a, i); err != nil {
					return err
				}
			}
			if err := s.send(a.chunk(i, sent[i].produced, now)); err != nil {
				return err
			}
			sent[i] = now
		}
	}
	if a.includeUsage {
		return s.send(a.usageChunk(sent))
	}
	return nil
}

// opening sends what comes before an answer's first token, if anything.
func (s *eventStream) opening(a *reply, i int) error {
	if first := a.opening(i); first != nil {
		return s.send(first)
	}
	return nil
}

func (s *eventStream) send(v any) error {
	s.buf.Reset()
	s.buf.WriteString("data: ")
	if err := s.enc.Encode(v); err != nil { // ends with one new line
		return fmt.Errorf("encode an event: %w", err)
	}
	s.buf.WriteByte('\n')
	return s.write(s.buf.Bytes())
}

func (s *eventStream) done() error { return s.write([]byte("data: [DONE]\n\n")) }

func (s *eventStream) write(event []byte) error {
	if _, err := s.w.Write(event); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	if err := s.flush.Flush(); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return nil
}
