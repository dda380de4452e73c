package api

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"
)

// code is what a program can act on.
type code string

const (
	codeJSON      code = "invalid_json"
	codeRequest   code = "invalid_request"
	codeModel     code = "model_not_found"
	codePrefixID  code = "invalid_prefix_id"
	codeTooLarge  code = "request_too_large"
	codeSlow      code = "request_timeout"
	codeEncoding  code = "unsupported_encoding"
	codeRoute     code = "route_not_found"
	codeMethod    code = "method_not_allowed"
	codeNoWorker  code = "no_instance"
	codeUpstream  code = "worker_unreachable"
	codeTimeout   code = "worker_timeout"
	codeTruncated code = "worker_stream_broken"
	codeInternal  code = "internal_error"
)

// apiError is an error of the router's own. A worker's passes through.
type apiError struct {
	status  int
	code    code
	param   string // the field at fault, "" for none
	message string
}

func (e *apiError) Error() string { return e.message }

func newError(status int, c code, format string, args ...any) *apiError {
	return &apiError{status: status, code: c, message: fmt.Sprintf(format, args...)}
}

func (e *apiError) at(param string) *apiError {
	e.param = param
	return e
}

// openAIType is OpenAI's name for the kind of error that a status stands for.
func openAIType(status int) string {
	switch {
	case status == http.StatusNotFound:
		return "not_found_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status < http.StatusInternalServerError:
		return "invalid_request_error"
	}
	return "server_error"
}

// openAIBody is OpenAI's error envelope.
func openAIBody(e *apiError) map[string]any {
	var param any
	if e.param != "" {
		param = e.param
	}
	return map[string]any{"error": map[string]any{
		"message": e.message, "type": openAIType(e.status), "param": param, "code": e.code,
	}}
}

// openAIErrors writes OpenAI's envelope.
func openAIErrors(c echo.Context, e *apiError) {
	setRetryAfter(c, e)
	_ = c.JSON(e.status, openAIBody(e)) // lost: the client is gone
}

// nativeShape is Amazon SageMaker Runtime's name and status for an error.
func nativeShape(e *apiError) (shape string, status int) {
	switch {
	case e.status == http.StatusServiceUnavailable:
		return "ServiceUnavailable", e.status
	case e.status == http.StatusRequestEntityTooLarge, e.status == http.StatusMethodNotAllowed:
		return "ValidationError", e.status
	case e.status < http.StatusInternalServerError:
		return "ValidationError", http.StatusBadRequest
	case e.status == http.StatusBadGateway, e.status == http.StatusGatewayTimeout:
		return "ServiceUnavailable", http.StatusServiceUnavailable
	}
	return "InternalFailure", http.StatusInternalServerError
}

// nativeErrors writes an error as Amazon SageMaker Runtime does.
func nativeErrors(c echo.Context, e *apiError) {
	shape, status := nativeShape(e)
	setRetryAfter(c, e)
	c.Response().Header().Set("x-amzn-ErrorType", shape)
	_ = c.JSON(status, map[string]any{"Message": e.message}) // lost: the client is gone
}

func setRetryAfter(c echo.Context, e *apiError) {
	if e.status == http.StatusServiceUnavailable || e.status == http.StatusTooManyRequests {
		c.Response().Header().Set("Retry-After", strconv.Itoa(retryAfterSeconds))
	}
}

const retryAfterSeconds = 1

// isNative reports whether a path is one of the native routes.
func isNative(path string) bool { return strings.HasPrefix(path, "/endpoints/") }
