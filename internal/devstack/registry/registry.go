// Package registry is the image registry of `muster dev`: it listens on loopback and stores blobs and manifests in a
// folder, so that an image keeps its digest and survives restarts.
package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Config says where the registry listens and stores its data.
type Config struct {
	Dir    string // data folder, created if missing
	Listen string // loopback: "127.0.0.1:0" for any port
	Log    *slog.Logger
}

// Registry is a running registry.
type Registry struct {
	listener net.Listener
	server   *http.Server
	served   chan error
}

// Start serves until Close. ctx limits only the start.
func Start(ctx context.Context, cfg Config) (*Registry, error) {
	blobs := filepath.Join(cfg.Dir, "blobs")
	kept := keeper{dir: filepath.Join(cfg.Dir, "manifests")}
	for _, d := range []string{blobs, kept.dir} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("make the registry's folder: %w", err)
		}
	}
	kept.next = registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)),
		registry.Logger(log.New(io.Discard, "", 0)))
	if err := kept.restore(); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for images: %w", err)
	}
	if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		l.Close()
		return nil, fmt.Errorf("the development registry has no passwords: %s is not loopback", ip)
	}
	r := &Registry{listener: l, served: make(chan error, 1), server: &http.Server{
		Handler: kept, ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelWarn),
	}}
	go func() { r.served <- r.server.Serve(l) }()
	return r, nil
}

// Addr returns host:port.
func (r *Registry) Addr() string { return r.listener.Addr().String() }

// Close stops serving.
func (r *Registry) Close() error {
	err := r.server.Close()
	if served := <-r.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
