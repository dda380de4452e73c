package api

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTheBodyGoesOnByteForByte(t *testing.T) {
	f := newFront(t, 1)
	// C03: big integers, floats, and characters that a re-encoder would change.
	odd := "{ \"seed\":9007199254740993,\"id\":9223372036854775807,\"x\":1e400,\"y\":-0,\"z\":1.0,\"t\":\"<>&\u2028\",\n \"model\":\"" + testModel + "\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"
	for _, path := range []string{chatPath, "/endpoints/llama/invocations"} {
		if r := f.post(path, odd); r.status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, r.status, r.body)
		}
		if body, _, _ := f.workers[0].last(); string(body) != odd {
			t.Errorf("%s: got %s, want %s", path, body, odd)
		}
	}
	if _, _, path := f.workers[0].last(); path != "/invocations" {
		t.Errorf("the native route went to %s", path)
	}
}

func TestReceiptSaysWhereAndWhy(t *testing.T) {
	f := newFront(t, 2)
	body := chat(strings.Repeat("The sea is wide and the lamp is lit. ", 20), "")
	first := f.post(chatPath, body)
	second := f.post(chatPath, body)
	if second.header.Get("X-Warmroute-Rule") != "prefix_hit" || second.header.Get("X-Warmroute-Instance") != first.header.Get("X-Warmroute-Instance") {
		t.Errorf("first %v, second %v", first.header, second.header)
	}
	if first.header.Get("X-Warmroute-Matched-Tokens") != "0" || second.header.Get("X-Warmroute-Matched-Tokens") == "0" || second.header.Get("X-Warmroute-Prompt-Tokens") == "0" {
		t.Errorf("first %v, second %v", first.header, second.header)
	}
	hidden := newFront(t, 1, func(o *Options) { o.HideReceipt = true })
	for name := range hidden.post(chatPath, body).header {
		if strings.HasPrefix(name, "X-Warmroute-") {
			t.Errorf("I03: the receipt is off, and %s is sent", name)
		}
	}
}

func TestB02_AClientThatLeavesEndsTheWorkersRequest(t *testing.T) {
	for _, headers := range []bool{false, true} {
		t.Run(fmt.Sprintf("after the head: %v", headers), func(t *testing.T) {
			f := newFront(t, 2)
			ended, began := make(chan struct{}), make(chan struct{})
			for _, w := range f.workers {
				w.does(func(rw http.ResponseWriter, r *http.Request) {
					if headers {
						stream(rw, "data: {}\n\n")
					}
					close(began)
					<-r.Context().Done()
					close(ended)
				})
			}
			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.public.URL+chatPath, strings.NewReader(chat("hi", `,"stream":true`)))
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := http.DefaultClient.Do(req); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
			<-began
			leave()
			<-done
			select {
			case <-ended:
			case <-time.After(limit):
				t.Fatal("the worker's request goes on")
			}
			eventually(t, "the slot is free", func() bool { return f.inFlight() == 0 })
			if n := f.workers[0].count() + f.workers[1].count(); n != 1 {
				t.Errorf("%d attempts for a client that left", n)
			}
		})
	}
}

func TestB03_CountsEndAtZeroWhateverHappens(t *testing.T) {
	f := newFront(t, 3, func(o *Options) { o.Timeouts.FirstByte = 2 * time.Second })
	for i, w := range f.workers {
		w.does(func(rw http.ResponseWriter, r *http.Request) {
			switch (w.count() + i) % 6 {
			case 0:
				answerOK(rw)
			case 1:
				http.Error(rw, "no", http.StatusUnprocessableEntity)
			case 2:
				http.Error(rw, "busy", http.StatusServiceUnavailable)
			case 3:
				stream(rw, "data: {}\n\n")
				panic(http.ErrAbortHandler)
			case 4:
				panic(http.ErrAbortHandler)
			case 5:
				rw.Header().Set("Content-Length", "100")
				_, _ = io.WriteString(rw, "short")
			}
		})
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.public.URL+chatPath, strings.NewReader(chat(fmt.Sprint("hi ", i%7), `,"stream":true`)))
			if err != nil {
				t.Error(err)
				return
			}
			if i%5 == 0 {
				time.AfterFunc(time.Duration(i)*time.Microsecond*50, cancel) // whenever: every moment must be safe
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, "all counts are zero", func() bool { return f.inFlight() == 0 })
	for _, i := range f.fleet.Endpoints()[0].Variants()[0].Instances() {
		if i.QueuedPrefill() != 0 {
			t.Errorf("%s ends with %d tokens queued", i.Name(), i.QueuedPrefill())
		}
	}
}

func TestB04_AnAnswerThatBreaksOffNeverLooksWhole(t *testing.T) {
	f := newFront(t, 1)
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) {
		stream(rw, "data: {\"n\":1}\n\n", "data: {\"n\":2}\n\n")
		panic(http.ErrAbortHandler)
	})
	r := f.post(chatPath, chat("hi", `,"stream":true`))
	if r.err == nil {
		t.Error("the stream ended cleanly")
	}
	if strings.Contains(r.body, "[DONE]") || !strings.Contains(r.body, `"n":2`) || !strings.Contains(r.body, string(codeTruncated)) {
		t.Errorf("got %q, want both chunks and an error event", r.body)
	}
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		rw.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(rw, `{"choices":[`)
	})
	resp, err := http.Post(f.public.URL+chatPath, "application/json", strings.NewReader(chat("hi", "")))
	if err == nil {
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("a short body ended cleanly: %q", body)
		}
	}
}

func TestB06_ASilentWorkerIsCutAndALongStreamIsNot(t *testing.T) {
	f := newFront(t, 1, func(o *Options) { o.Timeouts.Chunk = 300 * time.Millisecond })
	release := make(chan struct{})
	f.workers[0].does(func(rw http.ResponseWriter, r *http.Request) {
		stream(rw, "data: {\"n\":1}\n\n")
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	r := f.post(chatPath, chat("hi", `,"stream":true`))
	if r.err == nil || !strings.Contains(r.body, string(codeTruncated)) {
		t.Errorf("got %v, %q, want an error event and a cut", r.err, r.body)
	}
	close(release)
}

func TestB08_ALongEventPassesWhole(t *testing.T) {
	f := newFront(t, 1)
	long := "data: {\"choices\":[{\"delta\":{\"content\":\"" + strings.Repeat("x", 5<<20) + "\"}}]}\n\ndata: [DONE]\n\n"
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) { stream(rw, long) })
	if r := f.post(chatPath, chat("hi", `,"stream":true`)); r.body != long || r.err != nil {
		t.Errorf("got %d bytes, %v, want %d unchanged", len(r.body), r.err, len(long))
	}
}

func TestB11_FramingIsUntouched(t *testing.T) {
	f := newFront(t, 1)
	odd := ": ping\n\ndata:{\"a\":1}\r\n\r\nevent: x\nid: 7\ndata: \n\ndata: [DONE]\n\n"
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) { stream(rw, odd) })
	if r := f.post(chatPath, chat("hi", `,"stream":true`)); r.body != odd {
		t.Errorf("got %q, want %q", r.body, odd)
	}
}

func TestB12_AWorkersErrorKeepsItsStatusAndBody(t *testing.T) {
	f := newFront(t, 1)
	for _, status := range []int{400, 404, 422, 429, 500, 503} {
		f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			rw.WriteHeader(status)
			_, _ = fmt.Fprintf(rw, `{"error":{"message":"m","code":%d}}`, status)
		})
		r := f.post(chatPath, chat("hi", `,"stream":true`))
		if r.status != status || !strings.Contains(r.body, fmt.Sprint(status)) || r.header.Get("Content-Type") != "application/json" {
			t.Errorf("status %d came as %d %s %s", status, r.status, r.header.Get("Content-Type"), r.body)
		}
		if r.header.Get("X-Warmroute-Instance") != "w0" {
			t.Errorf("status %d: no receipt", status)
		}
	}
}

func TestB14_RetriesOnlyBeforeTheFirstByte(t *testing.T) {
	busy := func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "busy", http.StatusServiceUnavailable) }
	stopping := func(rw http.ResponseWriter, _ *http.Request) {
		http.Error(rw, shuttingDown, http.StatusInternalServerError)
	}
	reset := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	broken := func(rw http.ResponseWriter, _ *http.Request) {
		stream(rw, "data: {}\n\n")
		panic(http.ErrAbortHandler)
	}
	refuses := func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "bad", http.StatusBadRequest) }
	fails := func(rw http.ResponseWriter, _ *http.Request) { http.Error(rw, "bug", http.StatusInternalServerError) }
	for _, c := range []struct {
		name   string
		does   http.HandlerFunc
		tries  int
		status int
	}{
		{"503", busy, 2, 200},
		{"500 of a worker that shuts down", stopping, 2, 200},
		{"connection reset before the head", reset, 2, 200},
		{"after the first chunk", broken, 1, 200},
		{"400", refuses, 1, 400},
		{"any other 500", fails, 1, 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFront(t, 2)
			var first sync.Once
			for _, w := range f.workers {
				w.does(func(rw http.ResponseWriter, r *http.Request) {
					do := func(rw http.ResponseWriter, _ *http.Request) { answerOK(rw) }
					first.Do(func() { do = c.does })
					do(rw, r)
				})
			}
			r := f.post(chatPath, chat("hi", `,"stream":true`))
			tries := f.workers[0].count() + f.workers[1].count()
			if tries != c.tries || r.status != c.status {
				t.Errorf("%d attempts and status %d, want %d and %d: %s", tries, r.status, c.tries, c.status, r.body)
			}
			eventually(t, "the slots are free", func() bool { return f.inFlight() == 0 })
		})
	}
}

func TestUnreachableWorkersAreA502ThatSaysWhatToDo(t *testing.T) {
	f := newFront(t, 2)
	for _, w := range f.workers {
		w.CloseClientConnections()
		w.Close()
	}
	r := f.post(chatPath, chat("hi", ""))
	if r.status != http.StatusBadGateway || !strings.Contains(r.body, string(codeUpstream)) {
		t.Errorf("got %d %s", r.status, r.body)
	}
	n := f.post("/endpoints/llama/invocations", chat("hi", ""))
	if n.status != http.StatusServiceUnavailable || n.header.Get("x-amzn-ErrorType") != "ServiceUnavailable" {
		t.Errorf("native: got %d %v %s", n.status, n.header, n.body)
	}
}

func TestG05_AHungWorkerIsA504(t *testing.T) {
	f := newFront(t, 1, func(o *Options) { o.Timeouts.FirstByte = 100 * time.Millisecond })
	f.workers[0].does(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	if r := f.post(chatPath, chat("hi", "")); r.status != http.StatusGatewayTimeout || !strings.Contains(r.body, string(codeTimeout)) {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

func TestB15_AStreamTellsProxiesNotToGather(t *testing.T) {
	f := newFront(t, 1)
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) { stream(rw, "data: [DONE]\n\n") })
	h := f.post(chatPath, chat("hi", `,"stream":true`)).header
	if h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-cache" || h.Get("Content-Length") != "" {
		t.Errorf("got %v", h)
	}
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Cache-Control", "no-store")
		stream(rw, "data: [DONE]\n\n")
	})
	if got := f.post(chatPath, chat("hi", `,"stream":true`)).header.Get("Cache-Control"); got != "no-store" {
		t.Errorf("the worker's Cache-Control became %q", got)
	}
}

func TestB16_CompressionIsLeftAsItIs(t *testing.T) {
	f := newFront(t, 1)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = io.WriteString(z, `{"choices":[]}`)
	_ = z.Close()
	f.workers[0].does(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "gzip" {
			answerOK(rw)
			return
		}
		rw.Header().Set("Content-Encoding", "gzip")
		_, _ = rw.Write(packed.Bytes())
	})
	r := f.post(chatPath, chat("hi", ""), "Accept-Encoding", "gzip")
	if r.body != packed.String() || r.header.Get("Content-Encoding") != "gzip" {
		t.Errorf("got %q with %v", r.body, r.header)
	}
	if r := f.post(chatPath, chat("hi", "")); r.header.Get("Content-Encoding") != "" || !strings.Contains(r.body, "Yes.") {
		t.Errorf("got %q with %v", r.body, r.header)
	}
}

func TestEachChunkIsFlushedAsItComes(t *testing.T) {
	f := newFront(t, 1)
	next := make(chan struct{})
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) {
		for i := range 3 {
			stream(rw, fmt.Sprintf("data: %d\n\n", i))
			<-next
		}
	})
	resp, err := http.Post(f.public.URL+chatPath, "application/json", strings.NewReader(chat("hi", `,"stream":true`)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 { // the worker sends the next one only after this one was read
		line, err := lines.ReadString('\n')
		if err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Fatalf("got %q, %v", line, err)
		}
		_, _ = lines.ReadString('\n')
		next <- struct{}{}
	}
}

func TestI04_I07_HeadersThatDoNotGoOn(t *testing.T) {
	f := newFront(t, 1)
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Connection", "X-Hop")
		rw.Header().Set("X-Hop", "1")
		rw.Header().Set("Server", "uvicorn")
		rw.Header().Set("X-Warmroute-Instance", "forged")
		rw.Header().Set("X-Kept", "1")
		answerOK(rw)
	})
	r := f.post(chatPath, chat("hi", ""), "Authorization", "Bearer secret", "Cookie", "a=b", "Proxy-Authorization", "x", "X-Backend-Url", "http://evil",
		"X-Prefiller-Host-Port", "evil:1", "Forwarded", "for=x", "X-Forwarded-For", "1.2.3.4", "Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "X-Request-Id", "abc-1")
	_, h, _ := f.workers[0].last()
	for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization", "X-Backend-Url", "X-Prefiller-Host-Port", "Forwarded", "X-Forwarded-For"} {
		if h.Get(name) != "" {
			t.Errorf("%s reached the worker", name)
		}
	}
	if h.Get("Traceparent") == "" || h.Get("X-Request-Id") != "abc-1" || h.Get("Content-Type") != "application/json" {
		t.Errorf("the worker got %v", h)
	}
	if r.header.Get("X-Hop") != "" || r.header.Get("Server") != "" || r.header.Get("X-Warmroute-Instance") != "w0" || r.header.Get("X-Kept") != "1" || r.header.Get("X-Request-Id") != "abc-1" {
		t.Errorf("the client got %v", r.header)
	}
}

func TestC11_TheWorkersKeyIsTheRoutersOwn(t *testing.T) {
	f := newFront(t, 1, func(o *Options) { o.WorkerKey = "worker-key" })
	for _, path := range []string{chatPath, "/endpoints/llama/invocations"} {
		f.post(path, chat("hi", ""), "Authorization", "Bearer client-key")
		if _, h, _ := f.workers[0].last(); h.Get("Authorization") != "Bearer worker-key" {
			t.Errorf("%s: the worker got %q", path, h.Get("Authorization"))
		}
	}
	if strings.Contains(f.logs.String(), "-key") {
		t.Error("a key is in the log")
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	f := newFront(t, 1)
	f.workers[0].does(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Location", "http://169.254.169.254/")
		rw.WriteHeader(http.StatusTemporaryRedirect)
	})
	if r := f.post(chatPath, chat("hi", "")); r.status != http.StatusTemporaryRedirect {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if n := f.workers[0].count(); n != 1 {
		t.Errorf("%d requests", n)
	}
}
