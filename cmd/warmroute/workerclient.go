package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"
)

// workerKey is the key that the workers want, "" for none.
func (cfg *Config) workerKey() (string, error) {
	if cfg.WorkerKeyFile == "" {
		return "", nil
	}
	key, err := os.ReadFile(cfg.WorkerKeyFile)
	if err != nil {
		return "", fmt.Errorf("worker_key_file: %w", err)
	}
	return strings.TrimSpace(string(key)), nil
}

// newWorkerClient is a client for what the router itself asks the workers.
func newWorkerClient(key string, timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &keyed{key: key, next: &http.Transport{IdleConnTimeout: 4 * time.Second}}}
}

// keyed adds the workers' key to each request.
type keyed struct {
	key  string
	next *http.Transport
}

// RoundTrip is [http.RoundTripper]'s.
func (k *keyed) RoundTrip(r *http.Request) (*http.Response, error) {
	if k.key != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+k.key)
	}
	return k.next.RoundTrip(r)
}

// CloseIdleConnections is what [http.Client.CloseIdleConnections] calls.
func (k *keyed) CloseIdleConnections() { k.next.CloseIdleConnections() }
