package worker

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// apiError is an answer in vLLM's error envelope.
type apiError struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    int     `json:"code"` // the HTTP status
}

// Error implements error.
func (e *apiError) Error() string { return e.Message }

func badRequest(param, format string, args ...any) *apiError {
	return newError(http.StatusBadRequest, "BadRequestError", param, fmt.Sprintf(format, args...))
}

func notFound(model string) *apiError {
	return newError(http.StatusNotFound, "NotFoundError", "model", fmt.Sprintf("The model `%s` does not exist.", model))
}

// stopped is what vLLM answers once it is told to shut down: its health route
// still says 200 then.
func stopped() *apiError {
	return newError(http.StatusInternalServerError, "InternalServerError", "", "cannot schedule new requests after shutdown")
}

func newError(code int, kind, param, message string) *apiError {
	e := &apiError{Message: message, Type: kind, Code: code}
	if param != "" {
		e.Param = &param
	}
	return e
}

type errorEnvelope struct {
	Error *apiError `json:"error"`
}

func writeError(w http.ResponseWriter, e *apiError) { writeJSON(w, e.Code, errorEnvelope{e}) }

// detail is the envelope of routes that don't exist and methods that a route
// doesn't have.
func detail(w http.ResponseWriter, code int) {
	writeJSON(w, code, map[string]string{"detail": http.StatusText(code)})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client is gone, then
}
