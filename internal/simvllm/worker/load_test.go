package worker

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warmroute/warmroute/internal/simvllm"
)

// Many clients on a cache that is too small for them, a third of them leaving
// early: nothing stays in flight, and who read the events knows the cache.
func TestManyClientsLeaveNothingBehind(t *testing.T) {
	told := map[simvllm.Hash]int{} // written by Run alone until it has ended
	b := start(t, func(o *Options) {
		o.Engine.Blocks, o.Engine.MaxSeqs, o.Engine.MaxBatchedTokens = 60, 8, 128
		o.Publish = func(_ time.Time, events []simvllm.Event) {
			for _, e := range events {
				for _, h := range e.Hashes {
					if e.Kind == simvllm.BlocksStored {
						told[h]++
					} else if told[h]--; told[h] == 0 {
						delete(told, h)
					}
				}
			}
		}
	})
	var clients sync.WaitGroup
	for client := range 16 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(client)))
			for range 12 {
				ctx, cancel := context.WithCancel(t.Context())
				body := completion(strconv.Quote(prompt("topic "+strconv.Itoa(rng.IntN(4)), 1+rng.IntN(30))),
					`,"stream":true,"max_tokens":`+strconv.Itoa(1+rng.IntN(200)))
				req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.url+"/v1/completions", strings.NewReader(body))
				if err != nil {
					t.Error(err)
				}
				resp, err := b.client.Do(req)
				if err != nil {
					t.Error(err)
					cancel()
					return
				}
				if rng.IntN(3) > 0 {
					data, _ := io.ReadAll(resp.Body)
					if !strings.HasSuffix(string(data), "data: [DONE]\n\n") {
						t.Errorf("a stream ends with %q", data[max(0, len(data)-200):])
					}
				}
				cancel()
				_ = resp.Body.Close()
			}
		})
	}
	clients.Wait()
	b.rest()
	b.stop()
	<-b.ended
	s := b.runner.stats()
	if s.Running+s.Waiting+s.UsedBlocks != 0 {
		t.Errorf("left behind: %+v", s)
	}
	if s.Preemptions == 0 || s.Hits == 0 {
		t.Errorf("the cache was not too small, or of no use: %+v", s)
	}
	if len(told) != s.CachedBlocks {
		t.Errorf("the events told of %d hashes, the cache has %d", len(told), s.CachedBlocks)
	}
}
