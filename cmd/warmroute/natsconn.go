package main

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// connectNATS begins a connection that comes up when a server does and comes
// back whenever it is lost: the router starts and serves without it.
func connectNATS(cfg NATSConfig) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name("warmroute"),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.PingInterval(10 * time.Second), // a half-open connection is noticed in half a minute
		nats.MaxPingsOutstanding(2),
	}
	if cfg.CredentialsFile != "" {
		options = append(options, nats.UserCredentials(cfg.CredentialsFile))
	}
	if cfg.NKeyFile != "" {
		option, err := nats.NkeyOptionFromSeed(cfg.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("nats.nkey_file %s: %w", cfg.NKeyFile, err)
		}
		options = append(options, option)
	}
	if cfg.CAFile != "" {
		options = append(options, nats.RootCAs(cfg.CAFile))
	}
	if cfg.CertFile != "" {
		options = append(options, nats.ClientCert(cfg.CertFile, cfg.KeyFile))
	}
	if cfg.CAFile != "" || cfg.CertFile != "" {
		options = append(options, nats.Secure(&tls.Config{MinVersion: tls.VersionTLS12}))
	}
	nc, err := nats.Connect(cfg.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("nats %s: %w", redactURLs(cfg.URL), err)
	}
	return nc, nil
}

// redactURLs hides the passwords of a list of addresses.
func redactURLs(list string) string {
	parts := strings.Split(list, ",")
	for i, p := range parts {
		if u, err := url.Parse(strings.TrimSpace(p)); err == nil {
			parts[i] = u.Redacted()
		} else {
			parts[i] = "(unreadable address)"
		}
	}
	return strings.Join(parts, ",")
}
