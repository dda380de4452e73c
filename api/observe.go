package api

import (
	"bytes"
	"net/http"

	"github.com/tidwall/gjson"
)

// maxObserved is the most of one event, or of one JSON answer, that is kept to
// be looked at. A longer one is forwarded all the same, and not understood.
const maxObserved = 1 << 20

// observer looks at an answer as it passes and never changes it: when the first
// token came, and what the worker says was cached.
type observer struct {
	stream  bool
	ignore  bool // compressed: nothing can be seen
	first   bool // the first token has been seen
	skip    bool // the current event is too long
	pending []byte
	cached  int
	counted bool // cached is known
}

func newObserver(h http.Header) *observer {
	return &observer{stream: isStream(h), ignore: h.Get("Content-Encoding") != ""}
}

// see takes the next bytes and reports whether the first token came with them.
func (o *observer) see(p []byte) (first bool) {
	was := o.first
	if o.ignore || !o.stream {
		o.first = true
		if !o.ignore && len(o.pending)+len(p) <= maxObserved {
			o.pending = append(o.pending, p...)
		} else {
			o.ignore = true
		}
		return !was
	}
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			o.keep(p)
			break
		}
		line := p[:end]
		if len(o.pending) > 0 || o.skip {
			o.keep(line)
			line = o.pending
		}
		if !o.skip {
			o.event(bytes.TrimSuffix(line, []byte("\r")))
		}
		o.pending, o.skip = o.pending[:0], false
		p = p[end+1:]
	}
	return o.first && !was
}

// keep remembers the beginning of a line.
func (o *observer) keep(p []byte) {
	if o.skip || len(o.pending)+len(p) > maxObserved {
		o.pending, o.skip = o.pending[:0], true
		return
	}
	o.pending = append(o.pending, p...)
}

// event looks at one line of a stream.
func (o *observer) event(line []byte) {
	data, ok := bytes.CutPrefix(line, []byte("data:"))
	if !ok {
		return
	}
	if !o.first {
		o.first = hasToken(data)
	}
	if bytes.Contains(data, []byte(`"usage"`)) {
		o.usage(data)
	}
}

// hasToken reports whether an event carries generated text of any kind: its
// role alone is none.
func hasToken(data []byte) bool {
	found := false
	gjson.GetBytes(data, "choices").ForEach(func(_, choice gjson.Result) bool {
		for _, path := range []string{"delta.content", "delta.reasoning_content", "delta.reasoning", "delta.refusal", "text"} {
			found = found || choice.Get(path).String() != ""
		}
		found = found || choice.Get("delta.tool_calls.0").Exists()
		return !found
	})
	return found
}

// usage takes the worker's own count of cached tokens.
func (o *observer) usage(data []byte) {
	if v := gjson.GetBytes(data, "usage.prompt_tokens_details.cached_tokens"); v.Type == gjson.Number {
		o.cached, o.counted = int(v.Int()), true
	}
}

// end looks at an answer that was not a stream.
func (o *observer) end() {
	if !o.stream && !o.ignore && gjson.ValidBytes(o.pending) {
		o.usage(o.pending)
	}
}
