// Package registry is the image registry of `muster dev`: it listens on loopback and keeps blobs and manifests in a
// folder, so that an image has the same digest and is still there after a restart.
package registry

import (
	"context"
	"log/slog"

	"github.com/musterhq/muster/internal/fault"
)

// Config says where.
type Config struct {
	Dir    string // kept between starts; made if missing
	Listen string // "127.0.0.1:0" for any port
	Log    *slog.Logger
}

// Registry is a running registry.
type Registry struct{}

// Start serves until Close.
func Start(ctx context.Context, cfg Config) (*Registry, error) {
	return nil, fault.New(fault.Unavailable, "not built yet")
}

// Addr is host:port.
func (r *Registry) Addr() string { return "" }

// Close stops serving.
func (r *Registry) Close() error { return nil }
