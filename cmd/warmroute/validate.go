package main

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Names as Amazon SageMaker has them, and instance names as one token of a
// NATS subject.
const (
	endpointNamePattern = `^[A-Za-z0-9](-*[A-Za-z0-9]){0,62}$`
	instanceNamePattern = `^[A-Za-z0-9_-]{1,63}$`
)

// checker gathers what is wrong with a configuration.
type checker struct{ problems []string }

// fail says that the field at path has a value that it can't have.
func (c *checker) fail(path string, value any, allowed string) {
	if s, ok := value.(string); ok {
		value = fmt.Sprintf("%q", s)
	}
	c.problems = append(c.problems, fmt.Sprintf("%s: %v is not allowed: %s", path, value, allowed))
}

func (c *checker) oneOf(path, value string, allowed ...string) {
	if !slices.Contains(allowed, value) {
		c.fail(path, value, "one of "+strings.Join(allowed, ", "))
	}
}

func (c *checker) between(path string, value, low, high int64) {
	if value < low || value > high {
		c.fail(path, value, fmt.Sprintf("a number from %d to %d", low, high))
	}
}

func (c *checker) positive(path string, d time.Duration) {
	if d <= 0 {
		c.fail(path, d, "a duration above zero, such as 5s")
	}
}

func (c *checker) address(path, value string) {
	if _, _, err := net.SplitHostPort(value); err != nil {
		c.fail(path, value, "host:port, such as 127.0.0.1:8080")
	}
}

// validate lists everything that is wrong, one line each.
func (cfg *Config) validate() []string {
	var c checker
	c.address("listen", cfg.Listen)
	c.address("admin_listen", cfg.AdminListen)
	if cfg.Listen == cfg.AdminListen && !strings.HasSuffix(cfg.Listen, ":0") {
		c.fail("admin_listen", cfg.AdminListen, "another address than listen")
	}
	c.oneOf("log.level", cfg.Log.Level, "debug", "info", "warn", "error")
	c.oneOf("log.format", cfg.Log.Format, "json", "text")
	cfg.NATS.check(&c)
	if g := cfg.Replicas.Group; g != "" && !regexp.MustCompile(instanceNamePattern).MatchString(g) {
		c.fail("replicas.group", g, "at most 63 of A-Z a-z 0-9 _ and -, or nothing for a router that is alone")
	}
	c.between("tree.max_bytes", cfg.Tree.MaxBytes, 0, 1<<50)
	c.positive("tree.prediction_ttl", cfg.Tree.PredictionTTL)
	c.between("tree.cache_blocks", int64(cfg.Tree.CacheBlocks), 1, 1<<30)
	c.between("limits.max_body_bytes", cfg.Limits.MaxBodyBytes, 1024, 1<<32)
	c.between("limits.max_header_bytes", int64(cfg.Limits.MaxHeaderBytes), 4096, 1<<24)
	c.between("limits.retries", int64(cfg.Limits.Retries), 0, 10)
	cfg.Timeouts.check(&c)
	c.positive("health.interval", cfg.Health.Interval)
	c.positive("health.timeout", cfg.Health.Timeout)
	c.between("health.down", int64(cfg.Health.Down), 1, 100)
	c.between("health.up", int64(cfg.Health.Up), 1, 100)
	cfg.checkEndpoints(&c)
	return c.problems
}

func (n NATSConfig) check(c *checker) {
	if n.URL == "" {
		return
	}
	for u := range strings.SplitSeq(n.URL, ",") {
		parsed, err := url.Parse(strings.TrimSpace(u))
		if err != nil || parsed.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, parsed.Scheme) {
			// The value may hold a password: it is not repeated.
			c.problems = append(c.problems, "nats.url: not a NATS address: write nats://host:port (or tls://, ws://, wss://), several separated by commas")
		}
	}
	if (n.CertFile == "") != (n.KeyFile == "") {
		c.fail("nats.cert_file", n.CertFile, "cert_file and key_file are set together, or neither")
	}
	if n.CredentialsFile != "" && n.NKeyFile != "" {
		c.fail("nats.nkey_file", n.NKeyFile, "either credentials_file or nkey_file, not both")
	}
}

func (t TimeoutsConfig) check(c *checker) {
	c.positive("timeouts.read_header", t.ReadHeader)
	c.positive("timeouts.read_body", t.ReadBody)
	c.positive("timeouts.idle", t.Idle)
	c.positive("timeouts.connect", t.Connect)
	c.positive("timeouts.first_byte", t.FirstByte)
	c.positive("timeouts.chunk", t.Chunk)
	c.positive("timeouts.drain", t.Drain)
	if t.Warm < 0 {
		c.fail("timeouts.warm", t.Warm, "a duration, 0s for not to wait")
	}
	if t.DrainDelay < 0 {
		c.fail("timeouts.drain_delay", t.DrainDelay, "a duration, 0s for none")
	}
}

func (cfg *Config) checkEndpoints(c *checker) {
	name := regexp.MustCompile(endpointNamePattern)
	seen, models := map[string]bool{}, map[string]bool{}
	for i, e := range cfg.Endpoints {
		path := fmt.Sprintf("endpoints[%d]", i)
		if !name.MatchString(e.EndpointName) {
			c.fail(path+".EndpointName", e.EndpointName, "1 to 63 of A-Z a-z 0-9 and -, not beginning or ending with -")
		}
		if seen[e.EndpointName] {
			c.fail(path+".EndpointName", e.EndpointName, "a name that no other endpoint has")
		}
		seen[e.EndpointName] = true
		if e.Model == "" {
			c.fail(path+".Model", e.Model, "the name that the workers serve the model under (vllm serve --served-model-name)")
		}
		if models[e.Model] {
			c.fail(path+".Model", e.Model, "a model that no other endpoint serves")
		}
		models[e.Model] = true
		c.oneOf(path+".Tokenizer.Encoder", e.Tokenizer.Encoder, "", "native", "hf")
		c.between(path+".Tokenizer.CacheBytes", e.Tokenizer.CacheBytes, 1<<20, 1<<40)
		if len(e.ProductionVariants) == 0 {
			c.fail(path+".ProductionVariants", "[]", "at least one variant")
		}
		e.checkVariants(c, path)
	}
}

func (e *EndpointConfig) checkVariants(c *checker, endpoint string) {
	name := regexp.MustCompile(endpointNamePattern)
	variants, instances := map[string]bool{}, map[string]bool{}
	for i, v := range e.ProductionVariants {
		path := fmt.Sprintf("%s.ProductionVariants[%d]", endpoint, i)
		if !name.MatchString(v.VariantName) || variants[v.VariantName] {
			c.fail(path+".VariantName", v.VariantName, "1 to 63 of A-Z a-z 0-9 and -, once in an endpoint")
		}
		variants[v.VariantName] = true
		if w := *v.InitialVariantWeight; w < 0 || w > 1e6 {
			c.fail(path+".InitialVariantWeight", w, "a number from 0 to 1000000")
		}
		v.RoutingConfig.check(c, path+".RoutingConfig")
		for j, inst := range v.Instances {
			p := fmt.Sprintf("%s.Instances[%d]", path, j)
			if instances[inst.Name] {
				c.fail(p+".Name", inst.Name, "a name that no other instance of the endpoint has")
			}
			instances[inst.Name] = true
			inst.check(c, p)
		}
	}
}

func (r RoutingConfig) check(c *checker, path string) {
	c.oneOf(path+".RoutingStrategy", r.RoutingStrategy, "RANDOM", "LEAST_OUTSTANDING_REQUESTS", "PREFIX_AWARE", "KV_AWARE")
	p := r.PrefixAwareRoutingConfig
	path += ".PrefixAwareRoutingConfig"
	if r.RoutingStrategy == "PREFIX_AWARE" || p.PrefixLength != 0 {
		c.between(path+".PrefixLength", int64(p.PrefixLength), 1024, 65536)
	}
	if r.RoutingStrategy == "PREFIX_AWARE" || p.ConcurrencyThreshold != 0 {
		c.between(path+".ConcurrencyThreshold", int64(p.ConcurrencyThreshold), 1, 1024)
	}
	c.between(path+".MinMatchTokens", int64(p.MinMatchTokens), 0, 65536)
}

func (i InstanceConfig) check(c *checker, path string) {
	if !regexp.MustCompile(instanceNamePattern).MatchString(i.Name) {
		c.fail(path+".Name", i.Name, "1 to 63 of A-Z a-z 0-9 _ and -")
	}
	u, err := url.Parse(i.URL)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		c.fail(path+".URL", i.URL, "http://host:port or https://host:port")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		c.problems = append(c.problems, path+".URL: only scheme, host and port (and a path), no user, query or fragment")
	}
	if i.BlockSize != 0 {
		c.between(path+".BlockSize", int64(i.BlockSize), 1, 4096)
	}
	if i.CacheBlocks != 0 {
		c.between(path+".CacheBlocks", int64(i.CacheBlocks), 1, 1<<30)
	}
}
