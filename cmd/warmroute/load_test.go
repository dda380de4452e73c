package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const small = `
endpoints:
  - EndpointName: llama
    Model: m
    ProductionVariants:
      - RoutingConfig:
          RoutingStrategy: PREFIX_AWARE
          PrefixAwareRoutingConfig: {PrefixLength: 8192, ConcurrencyThreshold: 16}
        Instances:
          - {Name: a, URL: "http://127.0.0.1:8000"}
`

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "warmroute.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFlagWinsOverEnvironmentOverFile(t *testing.T) {
	s := source{
		path: write(t, "listen: 127.0.0.1:1\nadmin_listen: 127.0.0.1:2\nlog: {level: warn}\n"+small),
		env:  []string{"WARMROUTE_LISTEN=127.0.0.1:3", "WARMROUTE_ADMIN_LISTEN=127.0.0.1:4", "WARMROUTE_TIMEOUTS__CHUNK=7s", "OTHER=1"},
		flags: map[string]any{
			"listen": "127.0.0.1:5",
		},
	}
	cfg, err := s.load()
	if err != nil {
		t.Fatal(err)
	}
	got := []string{cfg.Listen, cfg.AdminListen, cfg.Log.Level, cfg.Timeouts.Chunk.String(), cfg.Log.Format}
	if diff := cmp.Diff([]string{"127.0.0.1:5", "127.0.0.1:4", "warn", "7s", "json"}, got); diff != "" {
		t.Error(diff)
	}
	v := cfg.Endpoints[0].ProductionVariants[0]
	if v.VariantName != "AllTraffic" || *v.InitialVariantWeight != 1 {
		t.Errorf("a variant that says nothing is %q with weight %v, want AllTraffic with 1", v.VariantName, *v.InitialVariantWeight)
	}
}

func TestDefaultStrategyIsRandom(t *testing.T) {
	head, _, _ := strings.Cut(small, "      - RoutingConfig")
	text := head + "      - Instances: [{Name: a, URL: 'http://h:1'}]\n"
	cfg, err := source{path: write(t, text)}.load()
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Endpoints[0].ProductionVariants[0].RoutingConfig.RoutingStrategy; got != "RANDOM" {
		t.Errorf("got %s, want RANDOM", got)
	}
}

func TestWrongFieldsAreNamedWithPathValueAndWhatIsAllowed(t *testing.T) {
	cases := []struct {
		name, text string
		env        []string
		want       []string
	}{
		{"unknown field at the top", "lisen: 127.0.0.1:1\n" + small, nil, []string{"lisen: unknown field", "did you mean listen?"}},
		{"unknown field deep below", strings.Replace(small, "PrefixLength", "PrefixLenght", 1), nil, []string{
			"endpoints[0].ProductionVariants[0].RoutingConfig.PrefixAwareRoutingConfig.PrefixLenght: unknown field", "did you mean PrefixLength?",
		}},
		{"number out of range", strings.Replace(small, "8192", "512", 1), nil, []string{
			"endpoints[0].ProductionVariants[0].RoutingConfig.PrefixAwareRoutingConfig.PrefixLength: 512 is not allowed: a number from 1024 to 65536",
		}},
		{"threshold missing", strings.Replace(small, ", ConcurrencyThreshold: 16", "", 1), nil, []string{"ConcurrencyThreshold: 0 is not allowed: a number from 1 to 1024"}},
		{"unknown strategy", strings.Replace(small, "PREFIX_AWARE", "PREFIX", 1), nil, []string{`RoutingStrategy: "PREFIX" is not allowed: one of RANDOM, LEAST_OUTSTANDING_REQUESTS, PREFIX_AWARE, KV_AWARE`}},
		{"text for a number", "limits: {retries: many}\n" + small, nil, []string{`limits.retries: "many" is not allowed: a whole number`}},
		{"a number for text", strings.Replace(small, "Model: m", "Model: 5", 1), nil, []string{"endpoints[0].Model: 5 is not allowed: a text"}},
		{"two of the wrong kind", "limits: {retries: many}\nreceipt: 7\n", nil, []string{"limits.retries", "receipt: 7 is not allowed: true or false"}},
		{"duration without a unit", "timeouts: {chunk: 5}\n" + small, nil, []string{"timeouts.chunk", "5 has no unit", "500ms"}},
		{"duration of zero", "timeouts: {chunk: 0s}\n" + small, nil, []string{"timeouts.chunk: 0s is not allowed"}},
		{"address without a port", "listen: localhost\n" + small, nil, []string{`listen: "localhost" is not allowed: host:port`}},
		{"instance without a scheme", strings.Replace(small, "http://127.0.0.1:8000", "127.0.0.1:8000", 1), nil, []string{`Instances[0].URL: "127.0.0.1:8000" is not allowed: http://host:port`}},
		{"instance name with a dot", strings.Replace(small, "Name: a,", "Name: a.b,", 1), nil, []string{`Instances[0].Name: "a.b" is not allowed`}},
		{"same key twice", "listen: 127.0.0.1:1\nlisten: 127.0.0.1:2\n", nil, []string{"listen", "already defined"}},
		{"not a mapping", "- a\n- b\n", nil, []string{"not a YAML mapping"}},
		{"unknown variable", small, []string{"WARMROUTE_LISTNE=x"}, []string{"listne: unknown field", "did you mean listen?"}},
		{"several at once", "listen: x\nadmin_listen: y\n", nil, []string{`listen: "x"`, `admin_listen: "y"`}},
		{"a password stays unsaid", "nats: {url: 'http://user:hunter2@h:1'}\n", nil, []string{"nats.url: not a NATS address"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := source{path: write(t, c.text), env: c.env}.load()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("the error repeats a password: %q", err)
			}
		})
	}
}

func TestExampleFileShowsEveryFieldWithItsDefault(t *testing.T) {
	cfg, err := source{path: "../../deploy/warmroute.example.yaml"}.load()
	if err != nil {
		t.Fatal(err)
	}
	cfg.Endpoints = nil
	want := defaultConfig()
	if diff := cmp.Diff(&want, cfg); diff != "" {
		t.Errorf("the example differs from the defaults (-default +example):\n%s", diff)
	}
	text, err := os.ReadFile("../../deploy/warmroute.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range configFieldNames() {
		if !strings.Contains(string(text), name+":") {
			t.Errorf("the example does not show %s", name)
		}
	}
}

func TestRestartNeededNamesWhatIsNotLive(t *testing.T) {
	a := defaultConfig()
	b := defaultConfig()
	b.Log.Level = "debug"
	b.Endpoints = []EndpointConfig{{}}
	if got := restartNeeded(&a, &b); len(got) != 0 {
		t.Errorf("got %v for changes that are live", got)
	}
	b.Limits.Retries++
	b.Timeouts.Drain = time.Second
	if diff := cmp.Diff([]string{"limits", "timeouts"}, restartNeeded(&a, &b)); diff != "" {
		t.Error(diff)
	}
}
