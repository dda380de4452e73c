package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settle is how long a file must be quiet before it is read: editors and
// configuration managers write in several steps.
const settle = 100 * time.Millisecond

// watch calls reload whenever the file may have changed, and on SIGHUP, until
// ctx ends. It watches the folder, since editors and Kubernetes replace the
// file rather than write to it.
func watch(ctx context.Context, path string, logger *slog.Logger, reload func()) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the configuration: %w", err)
	}
	defer watcher.Close() //nolint:errcheck // nothing to do about it
	if err := watcher.Add(filepath.Dir(path)); err != nil {
		return fmt.Errorf("watch %s: %w", filepath.Dir(path), err)
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)

	quiet := time.NewTimer(settle)
	quiet.Stop()
	last := contents(path)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hangup:
			last = contents(path)
			reload()
		case <-watcher.Events:
			quiet.Reset(settle)
		case err := <-watcher.Errors:
			logger.Warn("watching the configuration failed; SIGHUP reloads it", "error", err)
		case <-quiet.C:
			// A neighbour's change, or none: read nothing twice.
			if now := contents(path); now != last {
				last = now
				reload()
			}
		}
	}
}

// contents is the file's text, "" where it can't be read.
func contents(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// restartNeeded names the fields that differ and that only a restart applies.
func restartNeeded(old, next *Config) []string {
	a, b := *old, *next
	a.Endpoints, b.Endpoints = nil, nil
	a.Log.Level, b.Log.Level = "", ""
	var names []string
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		if !reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			names = append(names, va.Type().Field(i).Tag.Get("yaml"))
		}
	}
	return names
}
