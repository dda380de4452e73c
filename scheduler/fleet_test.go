package scheduler

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/warmroute/warmroute/internal/blockkey"
	"github.com/warmroute/warmroute/radix"
)

// testFleet is a scheduler over one endpoint "e" with one variant "v".
type testFleet struct {
	t testing.TB
	*Scheduler
	now    time.Time
	config EndpointConfig
	hashes uint64
}

func newFleet(t testing.TB, n int, routing Routing) *testFleet {
	t.Helper()
	f := &testFleet{t: t, now: time.Unix(1_700_000_000, 0)}
	f.Scheduler = New(Options{
		Held: radix.New(radix.Options{PredictionTTL: time.Minute}), Placed: radix.New(radix.Options{}),
		Rand: rand.New(rand.NewPCG(1, 2)), Registerer: prometheus.NewRegistry(),
	})
	f.config = EndpointConfig{Name: "e", Model: "m", Variants: []VariantConfig{{Name: "v", Weight: 1, Routing: routing}}}
	for i := range n {
		f.config.Variants[0].Instances = append(f.config.Variants[0].Instances, instanceConfig(i))
	}
	f.apply()
	return f
}

func instanceConfig(i int) InstanceConfig {
	return InstanceConfig{Name: fmt.Sprintf("i%d", i), URL: fmt.Sprintf("http://h%d", i), BlockSize: 16}
}

func (f *testFleet) apply() {
	f.t.Helper()
	if err := f.Apply([]EndpointConfig{f.config}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *testFleet) instance(i int) *Instance {
	f.t.Helper()
	inst, ok := f.Instance("e", fmt.Sprintf("i%d", i))
	if !ok {
		f.t.Fatalf("no instance %d", i)
	}
	return inst
}

// tokens are a prompt's: n tokens that begin alike for the same seed.
func tokens(seed, n int) []blockkey.Token {
	out := make([]blockkey.Token, n)
	for j := range out {
		out[j] = blockkey.Token(seed*1_000_003 + j*7 + 1)
	}
	return out
}

// request is one for a prompt, with chains for blocks of 16 and the further
// sizes.
func (f *testFleet) request(prompt []blockkey.Token, sizes ...int) *Request {
	f.t.Helper()
	e, ok := f.Endpoint("e")
	if !ok {
		f.t.Fatal("no endpoint")
	}
	r := &Request{Endpoint: e, PromptTokens: len(prompt)}
	for _, size := range append([]int{16}, sizes...) {
		root := blockkey.Root(blockkey.Namespace{Model: "m", BlockSize: size})
		r.Chains = append(r.Chains, blockkey.Chain{BlockSize: size, Keys: blockkey.Append(nil, root, prompt, size)})
	}
	return r
}

// hold stores a prompt's first n tokens on an instance, as its events would.
func (f *testFleet) hold(i int, prompt []blockkey.Token, n int) {
	f.t.Helper()
	inst := f.instance(i)
	size := inst.BlockSize()
	keys := blockkey.Append(nil, blockkey.Root(blockkey.Namespace{Model: "m", BlockSize: size}), prompt[:n], size)
	hashes := make([]radix.Hash, len(keys))
	for j := range hashes {
		f.hashes++
		hashes[j] = f.hashes
	}
	if err := f.held.StoreRoot(radix.Source{Instance: inst.Handle()}, keys, hashes); err != nil {
		f.t.Fatal(err)
	}
	inst.SetTrust(Live, "test")
}

func (f *testFleet) acquire(r *Request) *Lease {
	f.t.Helper()
	l, err := f.Acquire(r, f.now)
	if err != nil {
		f.t.Fatal(err)
	}
	return l
}

// load puts n requests on an instance that no prompt asked for.
func (f *testFleet) load(i, n int) { f.instance(i).inFlight.Add(int64(n)) }

func prefixAware(threshold int) Routing {
	return Routing{Strategy: PrefixAware, PrefixLength: 65536, ConcurrencyThreshold: threshold, MinMatchTokens: 16}
}
