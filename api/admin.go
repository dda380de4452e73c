package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/warmroute/warmroute/scheduler"
)

func (s *Server) adminRoutes() *echo.Echo {
	e := newEcho(openAIErrors)
	s.healthRoutes(e)
	e.GET("/metrics", echo.WrapHandler(promhttp.HandlerFor(s.o.Registry, promhttp.HandlerOpts{Registry: s.o.Registry})))
	e.GET("/admin/v1/status", s.status)
	e.POST("/admin/v1/explain", s.explain)
	return e
}

// alive answers while the process does: it asks neither workers nor NATS.
func alive(c echo.Context) error { return c.String(http.StatusOK, "ok\n") }

// ready says whether a balancer should send requests here.
func (s *Server) ready(c echo.Context) error {
	ok, why := s.o.Ready()
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	return c.JSON(status, map[string]any{"ready": ok, "detail": why})
}

// statusView is the fleet at a glance.
type statusView struct {
	Version   string         `json:"version"`
	Ready     bool           `json:"ready"`
	Detail    string         `json:"detail"`
	Endpoints []endpointView `json:"endpoints"`
	Tree      any            `json:"tree,omitempty"`
}

type endpointView struct {
	Name     string        `json:"name"`
	Model    string        `json:"model"`
	Matching string        `json:"matching"` // tokens, or raw bytes
	Variants []variantView `json:"variants"`
}

type variantView struct {
	Name      string             `json:"name"`
	Weight    float64            `json:"weight"`
	Strategy  scheduler.Strategy `json:"strategy"`
	Threshold int                `json:"concurrency_threshold,omitempty"`
	Instances []instanceView     `json:"instances"`
}

type instanceView struct {
	Name          string   `json:"name"`
	URL           string   `json:"url"`
	Ready         bool     `json:"ready"`
	InFlight      int      `json:"in_flight"`
	Elsewhere     int      `json:"in_flight_elsewhere"` // by way of other routers
	QueuedPrefill int      `json:"queued_prefill_tokens"`
	BlockSize     int      `json:"block_size"`
	Trust         string   `json:"trust"`
	TrustReason   string   `json:"trust_reason"`
	Adapters      []string `json:"adapters,omitempty"`
}

func (s *Server) status(c echo.Context) error {
	ok, why := s.o.Ready()
	view := statusView{Version: s.o.Version, Ready: ok, Detail: why, Endpoints: []endpointView{}}
	if s.o.Tree != nil {
		view.Tree = s.o.Tree()
	}
	for _, e := range s.o.Scheduler.Endpoints() {
		ev := endpointView{Name: e.Name(), Model: e.Model(), Matching: "raw bytes"}
		if s.o.Models(e.Name()) != nil {
			ev.Matching = "tokens"
		}
		for _, v := range e.Variants() {
			vv := variantView{Name: v.Name(), Weight: v.Weight(), Strategy: v.Routing().Strategy, Threshold: v.Routing().ConcurrencyThreshold, Instances: []instanceView{}}
			for _, i := range v.Instances() {
				trust, reason := i.Trust()
				vv.Instances = append(vv.Instances, instanceView{
					Name: i.Name(), URL: i.URL(), Ready: i.Ready(), InFlight: i.InFlight(), Elsewhere: i.Elsewhere(), QueuedPrefill: i.QueuedPrefill(),
					BlockSize: i.BlockSize(), Trust: trust.String(), TrustReason: reason, Adapters: i.Adapters(),
				})
			}
			ev.Variants = append(ev.Variants, vv)
		}
		view.Endpoints = append(view.Endpoints, ev)
	}
	return c.JSON(http.StatusOK, view)
}

// explain says where a request's body would go, and why; nothing is sent. The
// body is a chat's, or with ?route=completions a completion's.
func (s *Server) explain(c echo.Context) error {
	r := &request{route: chatRoute(), arrived: s.o.Now()}
	if c.QueryParam("route") == "completions" {
		r.route = completionRoute()
	}
	if fault := s.prepareOpenAI(c, r); fault != nil {
		return fault
	}
	s.readPrompt(r)
	defer s.prompts.release(r)
	out, err := s.o.Scheduler.Explain(&scheduler.Request{
		Endpoint: r.endpoint, Variant: r.variant, Adapter: r.adapter, PrefixID: r.prefixID,
		PromptTokens: r.prompt.tokens, Chains: r.prompt.chains,
	})
	if err != nil {
		return newError(http.StatusServiceUnavailable, codeNoWorker, "%s", err.Error())
	}
	return c.JSON(http.StatusOK, map[string]any{
		"endpoint": r.endpoint.Name(), "prompt_tokens": r.prompt.tokens, "token_affinity": r.prompt.exact, "decision": out,
	})
}
