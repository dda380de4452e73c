package api

import (
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/warmroute/warmroute/tokenize"
)

// The routes with a prompt.

func chatRoute() route {
	return route{path: "/v1/chat/completions", prompt: true, kind: tokenize.Chat}
}

func completionRoute() route {
	return route{path: "/v1/completions", prompt: true, kind: tokenize.Completion}
}

// openAI serves a route whose body names the model.
func (s *Server) openAI(to route) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := &request{route: to, arrived: s.o.Now()}
		if fault := s.prepareOpenAI(c, r); fault != nil {
			s.finish(c, r, nil, fault)
			return fault
		}
		return s.forward(c, r)
	}
}

// prepareOpenAI reads the request up to its endpoint.
func (s *Server) prepareOpenAI(c echo.Context, r *request) *apiError {
	r.id = requestID(c)
	if fault := r.readHeaders(c.Request().Header); fault != nil {
		return fault
	}
	if fault := s.readBody(c, r); fault != nil {
		return fault
	}
	if fault := r.readFields(); fault != nil {
		return fault
	}
	if r.model == "" {
		return newError(http.StatusBadRequest, codeRequest, "model is missing: name one of %s", s.served()).at("model")
	}
	var ok bool
	r.endpoint, r.adapter, ok = s.o.Scheduler.ByModel(r.model)
	if !ok {
		return newError(http.StatusNotFound, codeModel, "no endpoint serves the model %q; served here: %s", clip(r.model), s.served()).at("model")
	}
	if r.route.prompt && r.route.kind == tokenize.Chat {
		return r.checkMessages()
	}
	return nil
}

// served lists the models for a message.
func (s *Server) served() string {
	var names []string
	for _, m := range s.modelList() {
		if len(names) == 10 {
			names = append(names, "… (GET /v1/models lists all)")
			break
		}
		names = append(names, m.ID)
	}
	if len(names) == 0 {
		return "none yet: add endpoints to the configuration"
	}
	return strings.Join(names, ", ")
}

// clip bounds what an error repeats of a request.
func clip(s string) string {
	const most = 100
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// modelCard is one entry of /v1/models.
type modelCard struct {
	ID      string  `json:"id"`
	Object  string  `json:"object"`
	Created int64   `json:"created"`
	OwnedBy string  `json:"owned_by"`
	Root    string  `json:"root"`
	Parent  *string `json:"parent"`
}

// modelList is the union over endpoints and their adapters.
func (s *Server) modelList() []modelCard {
	list := []modelCard{}
	for _, e := range s.o.Scheduler.Endpoints() {
		list = append(list, modelCard{ID: e.Model(), Object: "model", Created: s.started.Unix(), OwnedBy: "warmroute", Root: e.Model()})
		var adapters []string
		for _, v := range e.Variants() {
			for _, i := range v.Instances() {
				adapters = append(adapters, i.Adapters()...)
			}
		}
		slices.Sort(adapters)
		parent := e.Model()
		for _, name := range slices.Compact(adapters) {
			list = append(list, modelCard{ID: name, Object: "model", Created: s.started.Unix(), OwnedBy: "warmroute", Root: name, Parent: &parent})
		}
	}
	return list
}

func (s *Server) models(c echo.Context) error {
	return c.JSON(http.StatusOK, map[string]any{"object": "list", "data": s.modelList()})
}
