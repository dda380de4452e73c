package api

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/tidwall/gjson"
)

// invocations is Amazon SageMaker Runtime's InvokeEndpoint. The body is opaque:
// what is understood of it is matched by tokens, the rest by its bytes.
func (s *Server) invocations(c echo.Context) error {
	r := &request{route: route{path: "/invocations", native: true}, arrived: s.o.Now()}
	if fault := s.prepareNative(c, r); fault != nil {
		s.finish(c, r, nil, fault)
		return fault
	}
	return s.forward(c, r)
}

func (s *Server) prepareNative(c echo.Context, r *request) *apiError {
	r.id = requestID(c)
	c.Response().Header().Set("x-amzn-RequestId", r.id)
	name := c.Param("name")
	var ok bool
	if r.endpoint, ok = s.o.Scheduler.Endpoint(name); !ok {
		return newError(http.StatusBadRequest, codeModel, "Endpoint %s of this account was not found.", clip(name))
	}
	if fault := r.readHeaders(c.Request().Header); fault != nil {
		return fault
	}
	if r.variant != "" && !hasVariant(r) {
		return newError(http.StatusBadRequest, codeRequest, "Variant %s of endpoint %s was not found.", clip(r.variant), name)
	}
	if fault := s.readBody(c, r); fault != nil {
		return fault
	}
	if gjson.ValidBytes(r.body) {
		// A body that is not what it seems is the worker's to refuse.
		if r.readFields() == nil && r.model != "" && r.model != r.endpoint.Model() {
			if e, adapter, ok := s.o.Scheduler.ByModel(r.model); ok && e == r.endpoint {
				r.adapter = adapter
			}
		}
	}
	return nil
}

func hasVariant(r *request) bool {
	for _, v := range r.endpoint.Variants() {
		if v.Name() == r.variant {
			return true
		}
	}
	return false
}

// nativeRefusal turns a worker's error into Amazon SageMaker Runtime's
// ModelError.
func nativeRefusal(c echo.Context, status int, body []byte) error {
	const most = 4096 // of the worker's words
	if len(body) > most {
		body = body[:most]
	}
	text := string(body)
	side := "client"
	if status >= http.StatusInternalServerError {
		side = "server"
	}
	c.Response().Header().Set("x-amzn-ErrorType", "ModelError")
	return c.JSON(http.StatusFailedDependency, map[string]any{
		"Message":            "Received " + side + " error (" + http.StatusText(status) + ") from the model; see OriginalMessage.",
		"OriginalStatusCode": status,
		"OriginalMessage":    text,
		"LogStreamArn":       "",
	})
}
