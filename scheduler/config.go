package scheduler

import (
	"fmt"
	"math"
)

// Strategy is how a variant chooses among its instances. The names are Amazon
// SageMaker's.
type Strategy string

// The strategies.
const (
	Random           Strategy = "RANDOM"
	LeastOutstanding Strategy = "LEAST_OUTSTANDING_REQUESTS"
	PrefixAware      Strategy = "PREFIX_AWARE"
	KVAware          Strategy = "KV_AWARE"
)

// Limits of PREFIX_AWARE's parameters, from Amazon SageMaker's API.
const (
	minPrefixLength, maxPrefixLength = 1024, 65536
	minThreshold, maxThreshold       = 1, 1024
)

// DefaultMinMatchTokens is the shortest match that decides where nothing else
// is said: a chat template's own preamble is shorter, and recomputing as much
// costs a worker a few milliseconds.
const DefaultMinMatchTokens = 64

// Routing is one variant's routing configuration.
type Routing struct {
	Strategy Strategy // "" is RANDOM
	// PrefixLength is what counts of a prompt: characters of message text, or
	// bytes of a native body. 1024 to 65536; 0 for everything (not PREFIX_AWARE).
	PrefixLength int
	// ConcurrencyThreshold is the number of requests in flight at which an
	// instance gets no more for its cache. 1 to 1024, PREFIX_AWARE only.
	ConcurrencyThreshold int
	// MinMatchTokens: a shorter match does not decide. 0 is
	// [DefaultMinMatchTokens].
	MinMatchTokens int
}

// EndpointConfig is one endpoint.
type EndpointConfig struct {
	Name     string // unique
	Model    string // the served model's name, unique
	Variants []VariantConfig
}

// VariantConfig is one production variant.
type VariantConfig struct {
	Name      string  // unique in its endpoint
	Weight    float64 // its share of the endpoint's requests, relative to the others'
	Routing   Routing
	Instances []InstanceConfig
}

// InstanceConfig is one worker.
type InstanceConfig struct {
	Name        string   // unique in its endpoint
	URL         string   // where it serves
	BlockSize   int      // tokens per KV block; 0: learnt from its events, [defaultBlockSize] till then
	CacheBlocks int      // blocks that its cache holds; 0: unknown
	Adapters    []string // LoRA adapters that it has loaded
}

// defaultBlockSize is vLLM's on GPUs.
const defaultBlockSize = 16

// normal fills in defaults, or says what is wrong with the field.
func (r Routing) normal(path string) (Routing, error) {
	switch r.Strategy {
	case "":
		r.Strategy = Random
	case Random, LeastOutstanding, KVAware:
	case PrefixAware:
		if r.PrefixLength < minPrefixLength || r.PrefixLength > maxPrefixLength {
			return r, fmt.Errorf("%s.PrefixLength: %d is not allowed: a number from %d to %d", path, r.PrefixLength, minPrefixLength, maxPrefixLength)
		}
		if r.ConcurrencyThreshold < minThreshold || r.ConcurrencyThreshold > maxThreshold {
			return r, fmt.Errorf("%s.ConcurrencyThreshold: %d is not allowed: a number from %d to %d", path, r.ConcurrencyThreshold, minThreshold, maxThreshold)
		}
	default:
		return r, fmt.Errorf("%s.RoutingStrategy: %q is not allowed: one of %s, %s, %s, %s", path, r.Strategy, Random, LeastOutstanding, PrefixAware, KVAware)
	}
	if r.MinMatchTokens < 0 {
		return r, fmt.Errorf("%s.MinMatchTokens: %d is not allowed: a number of 0 or more", path, r.MinMatchTokens)
	}
	if r.MinMatchTokens == 0 {
		r.MinMatchTokens = DefaultMinMatchTokens
	}
	return r, nil
}

// check says what is wrong with a configuration, by the field's path.
func check(endpoints []EndpointConfig) error {
	names, models := map[string]bool{}, map[string]bool{}
	for i, e := range endpoints {
		path := fmt.Sprintf("endpoints[%d]", i)
		if e.Name == "" || names[e.Name] {
			return fmt.Errorf("%s.Name: %q is not allowed: a name that no other endpoint has", path, e.Name)
		}
		if e.Model == "" || models[e.Model] {
			return fmt.Errorf("%s.Model: %q is not allowed: a model that no other endpoint serves", path, e.Model)
		}
		names[e.Name], models[e.Model] = true, true
		if len(e.Variants) == 0 {
			return fmt.Errorf("%s.Variants: none is not allowed: at least one", path)
		}
		if err := e.checkVariants(path); err != nil {
			return err
		}
	}
	return nil
}

func (e EndpointConfig) checkVariants(endpoint string) error {
	variants, instances := map[string]bool{}, map[string]bool{}
	for i, v := range e.Variants {
		path := fmt.Sprintf("%s.Variants[%d]", endpoint, i)
		if v.Name == "" || variants[v.Name] {
			return fmt.Errorf("%s.Name: %q is not allowed: a name that no other variant of the endpoint has", path, v.Name)
		}
		variants[v.Name] = true
		if !(v.Weight >= 0) || math.IsInf(v.Weight, 1) {
			return fmt.Errorf("%s.Weight: %v is not allowed: a number of 0 or more", path, v.Weight)
		}
		if _, err := v.Routing.normal(path + ".Routing"); err != nil {
			return err
		}
		for j, inst := range v.Instances {
			if inst.Name == "" || instances[inst.Name] {
				return fmt.Errorf("%s.Instances[%d].Name: %q is not allowed: a name that no other instance of the endpoint has", path, j, inst.Name)
			}
			instances[inst.Name] = true
			if inst.BlockSize < 0 || inst.CacheBlocks < 0 {
				return fmt.Errorf("%s.Instances[%d]: a negative block size or cache size is not allowed", path, j)
			}
		}
	}
	return nil
}
