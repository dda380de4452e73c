package worker

import (
	"encoding/json"
	"net/http"
	"slices"
	"sync"
)

// adapters are the LoRA adapters that are loaded.
type adapters struct {
	mu    sync.Mutex
	names []string // sorted
}

func newAdapters(names []string) *adapters {
	names = slices.Clone(names)
	slices.Sort(names)
	return &adapters{names: slices.Compact(names)}
}

func (a *adapters) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.names)
}

func (a *adapters) has(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := slices.BinarySearch(a.names, name)
	return ok
}

// load reports false if the adapter is there already.
func (a *adapters) load(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := slices.BinarySearch(a.names, name)
	if !ok {
		a.names = slices.Insert(a.names, i, name)
	}
	return !ok
}

// unload reports false if there is no such adapter. Its blocks stay cached: a
// later load under the same name finds them, as in vLLM.
func (a *adapters) unload(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, ok := slices.BinarySearch(a.names, name)
	if ok {
		a.names = slices.Delete(a.names, i, i+1)
	}
	return ok
}

func (w *Worker) loadAdapter(rw http.ResponseWriter, r *http.Request) {
	name, fail := adapterName(rw, r)
	switch {
	case fail != nil:
		writeError(rw, fail)
	case name == w.o.ModelName || !w.adapters.load(name):
		writeError(rw, newError(http.StatusBadRequest, "InvalidUserInput", "", "The lora adapter '"+name+"' has already been loaded."))
	default:
		plain(rw, "Success: LoRA adapter '"+name+"' added successfully.")
	}
}

func (w *Worker) unloadAdapter(rw http.ResponseWriter, r *http.Request) {
	name, fail := adapterName(rw, r)
	switch {
	case fail != nil:
		writeError(rw, fail)
	case !w.adapters.unload(name):
		writeError(rw, newError(http.StatusNotFound, "NotFoundError", "", "The lora adapter '"+name+"' cannot be found."))
	default:
		plain(rw, "Success: LoRA adapter '"+name+"' removed successfully.")
	}
}

func adapterName(rw http.ResponseWriter, r *http.Request) (string, *apiError) {
	body, fail := readBody(rw, r)
	if fail != nil {
		return "", fail
	}
	var asked struct {
		Name string `json:"lora_name"`
	}
	if err := json.Unmarshal(body, &asked); err != nil || asked.Name == "" {
		return "", badRequest("lora_name", "lora_name is missing.")
	}
	return asked.Name, nil
}
