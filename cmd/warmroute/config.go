package main

import "time"

// Config is everything that an operator can set. The file is YAML; the
// comments here are its manual, and deploy/warmroute.example.yaml shows every
// field with its default (a test holds the two together).
//
// Each scalar can also be set from the environment, WARMROUTE_ and the path in
// capitals with two underscores between its parts (WARMROUTE_NATS__URL), and a
// few by a flag. A flag wins over the environment, and that over the file.
type Config struct {
	Listen      string `yaml:"listen"`       // address of the API
	AdminListen string `yaml:"admin_listen"` // address of metrics, health and status; keep it private
	Receipt     bool   `yaml:"receipt"`      // send the X-Warmroute-… headers with each response

	WorkerKeyFile string `yaml:"worker_key_file"` // file with the key that the workers want (vllm serve --api-key); "" = none

	Log      LogConfig      `yaml:"log"`
	NATS     NATSConfig     `yaml:"nats"`
	Replicas ReplicasConfig `yaml:"replicas"`
	Tree     TreeConfig     `yaml:"tree"`
	Limits   LimitsConfig   `yaml:"limits"`
	Timeouts TimeoutsConfig `yaml:"timeouts"`
	Health   HealthConfig   `yaml:"health"`

	Endpoints []EndpointConfig `yaml:"endpoints"` // what is served; watched: a change is live at once
}

// LogConfig says what is logged and how. Prompts, keys and tokens never are.
type LogConfig struct {
	Level  string `yaml:"level"`  // debug, info, warn or error; live
	Format string `yaml:"format"` // json or text
}

// NATSConfig is the connection that KV events come over.
type NATSConfig struct {
	URL             string `yaml:"url"`              // nats://host:port, several separated by commas; "" = no events
	CredentialsFile string `yaml:"credentials_file"` // user credentials (JWT and key), "" = none
	NKeyFile        string `yaml:"nkey_file"`        // nkey seed, "" = none
	CAFile          string `yaml:"ca_file"`          // PEM of the authorities that sign the server's certificate
	CertFile        string `yaml:"cert_file"`        // PEM of this client's certificate, with key_file
	KeyFile         string `yaml:"key_file"`
}

// ReplicasConfig is how the routers in front of one fleet know each other.
type ReplicasConfig struct {
	Group string `yaml:"group"` // routers of one group on one NATS share counts and predictions; "" = this one is alone
}

// TreeConfig bounds the global radix tree.
type TreeConfig struct {
	MaxBytes      int64         `yaml:"max_bytes"`      // most bytes of memory; 0 = no limit
	PredictionTTL time.Duration `yaml:"prediction_ttl"` // how long a block is believed to be where a request was sent, without an event
	CacheBlocks   int           `yaml:"cache_blocks"`   // blocks that an instance of unknown cache size is believed to hold at most
}

// LimitsConfig bounds what one client can ask for.
type LimitsConfig struct {
	MaxBodyBytes   int64 `yaml:"max_body_bytes"`   // largest request body
	MaxHeaderBytes int   `yaml:"max_header_bytes"` // largest request head
	Retries        int   `yaml:"retries"`          // further instances to try before the first byte of an answer
}

// TimeoutsConfig bounds how long each step may take.
type TimeoutsConfig struct {
	ReadHeader time.Duration `yaml:"read_header"` // client: whole request head
	ReadBody   time.Duration `yaml:"read_body"`   // client: whole request body
	Idle       time.Duration `yaml:"idle"`        // client: keep-alive connection without a request
	Connect    time.Duration `yaml:"connect"`     // worker: connection made
	FirstByte  time.Duration `yaml:"first_byte"`  // worker: head of the answer
	Chunk      time.Duration `yaml:"chunk"`       // worker: between two chunks of the answer
	Warm       time.Duration `yaml:"warm"`        // start: not ready until the instances have said what they hold, for at most so long
	DrainDelay time.Duration `yaml:"drain_delay"` // shutdown: not ready, still taking requests
	Drain      time.Duration `yaml:"drain"`       // shutdown: for running requests to end
}

// HealthConfig is how instances are watched. An instance out of service gets no
// new requests; what it is known to hold is kept.
type HealthConfig struct {
	Interval time.Duration `yaml:"interval"` // between two checks of an instance
	Timeout  time.Duration `yaml:"timeout"`  // for one check
	Down     int           `yaml:"down"`     // failed checks in a row that take it out of service
	Up       int           `yaml:"up"`       // good checks in a row that bring it back
}

// EndpointConfig is one endpoint. Its fields have the names that Amazon
// SageMaker gives them.
type EndpointConfig struct {
	EndpointName       string          `yaml:"EndpointName"`       // at most 63 of A-Z a-z 0-9 and -
	Model              string          `yaml:"Model"`              // the name the workers serve it under; clients name it in "model"
	Tokenizer          TokenizerConfig `yaml:"Tokenizer"`          // the model's own tokenizer
	ProductionVariants []VariantConfig `yaml:"ProductionVariants"` // at least one
}

// TokenizerConfig is how text becomes the worker's tokens. Without a path
// requests are matched by their raw bytes.
type TokenizerConfig struct {
	Path       string `yaml:"Path"`       // the model's tokenizer.json
	Template   string `yaml:"Template"`   // chat template: llama3.1, a file, or "" for the one beside the tokenizer
	Encoder    string `yaml:"Encoder"`    // native, hf (a binary built with the tag hf), or "" for native
	CacheBytes int64  `yaml:"CacheBytes"` // memory for known prompts
}

// VariantConfig is one production variant: instances that serve the model in
// the same way.
type VariantConfig struct {
	VariantName          string           `yaml:"VariantName"`          // at most 63 of A-Z a-z 0-9 and -
	InitialVariantWeight *float64         `yaml:"InitialVariantWeight"` // share of the endpoint's requests, relative to the other variants; 1 where it is left out
	RoutingConfig        RoutingConfig    `yaml:"RoutingConfig"`        // live
	Instances            []InstanceConfig `yaml:"Instances"`            // live
}

// RoutingConfig is how a variant chooses among its instances.
type RoutingConfig struct {
	RoutingStrategy          string             `yaml:"RoutingStrategy"` // RANDOM, LEAST_OUTSTANDING_REQUESTS, PREFIX_AWARE or KV_AWARE
	PrefixAwareRoutingConfig PrefixAwareRouting `yaml:"PrefixAwareRoutingConfig"`
}

// PrefixAwareRouting are the parameters of PREFIX_AWARE.
type PrefixAwareRouting struct {
	PrefixLength         int `yaml:"PrefixLength"`         // 1024-65536: what counts of a prompt, in characters of message text (native route: bytes of the body)
	ConcurrencyThreshold int `yaml:"ConcurrencyThreshold"` // 1-1024: requests in flight at which an instance gets no more for its cache
	MinMatchTokens       int `yaml:"MinMatchTokens"`       // a shorter match does not decide; 0 = the built-in default
}

// InstanceConfig is one vLLM worker.
type InstanceConfig struct {
	Name        string   `yaml:"Name"`        // its name in NATS subjects: at most 63 of A-Z a-z 0-9 _ and -
	URL         string   `yaml:"URL"`         // http://host:port
	BlockSize   int      `yaml:"BlockSize"`   // tokens per KV block; 0 = learnt from its events
	CacheBlocks int      `yaml:"CacheBlocks"` // blocks its cache holds; 0 = unknown
	Adapters    []string `yaml:"Adapters"`    // LoRA adapters it has loaded
}

// defaultConfig is what holds where the file says nothing.
func defaultConfig() Config {
	return Config{
		Listen:      "127.0.0.1:8080",
		AdminListen: "127.0.0.1:8081",
		Receipt:     true,
		Log:         LogConfig{Level: "info", Format: "json"},
		NATS:        NATSConfig{URL: "nats://127.0.0.1:4222"},
		Replicas:    ReplicasConfig{Group: "default"},
		Tree:        TreeConfig{MaxBytes: 4 << 30, PredictionTTL: time.Minute, CacheBlocks: 1 << 16},
		Limits:      LimitsConfig{MaxBodyBytes: 32 << 20, MaxHeaderBytes: 64 << 10, Retries: 2},
		Timeouts: TimeoutsConfig{
			ReadHeader: 10 * time.Second,
			ReadBody:   time.Minute,
			Idle:       2 * time.Minute,
			Connect:    2 * time.Second,
			FirstByte:  10 * time.Minute,
			Chunk:      2 * time.Minute,
			Warm:       10 * time.Second,
			DrainDelay: 2 * time.Second,
			Drain:      time.Minute,
		},
		Health: HealthConfig{Interval: 2 * time.Second, Timeout: 5 * time.Second, Down: 3, Up: 2},
	}
}

// endpoint finds one by name, nil when there is none.
func (cfg *Config) endpoint(name string) *EndpointConfig {
	for i := range cfg.Endpoints {
		if cfg.Endpoints[i].EndpointName == name {
			return &cfg.Endpoints[i]
		}
	}
	return nil
}

// fill sets what an endpoint's entry leaves open.
func (e *EndpointConfig) fill() {
	if e.Tokenizer.CacheBytes == 0 {
		e.Tokenizer.CacheBytes = 256 << 20
	}
	for i := range e.ProductionVariants {
		v := &e.ProductionVariants[i]
		if v.VariantName == "" {
			v.VariantName = "AllTraffic"
		}
		if v.InitialVariantWeight == nil {
			one := 1.0
			v.InitialVariantWeight = &one
		}
		if v.RoutingConfig.RoutingStrategy == "" {
			v.RoutingConfig.RoutingStrategy = "RANDOM"
		}
	}
}
