package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// listener is one address that is served. Its port is taken at once and served later, when the handler exists.
type listener struct {
	net.Listener
	handler http.Handler
	srv     *http.Server
}

// listen takes an address; with a certificate it serves TLS. It reads the certificate again after the file changed, so
// that a renewed certificate needs no restart.
func listen(addr, cert, key string) (*listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if cert != "" {
		pair := &reloadedCert{cert: cert, key: key}
		if _, err := pair.get(nil); err != nil {
			l.Close()
			return nil, err
		}
		l = tls.NewListener(l, &tls.Config{
			MinVersion:     tls.VersionTLS13,
			GetCertificate: pair.get,
			NextProtos:     []string{"http/1.1"},
		})
	}
	return &listener{Listener: l}, nil
}

func (l *listener) addr() string { return l.Addr().String() }

func (l *listener) serve(log *slog.Logger) {
	l.srv = &http.Server{
		Handler:           l.handler,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() {
		if err := l.srv.Serve(l.Listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("a listener ended", "addr", l.addr(), "err", err)
		}
	}()
}

// close lets pending responses finish until ctx ends; then it cuts streams (live pages, logs).
func (l *listener) close(ctx context.Context) error {
	if l.srv == nil {
		return l.Listener.Close()
	}
	soft, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := l.srv.Shutdown(soft); err != nil {
		return l.srv.Close()
	}
	return nil
}

// reloadedCert is a certificate on disk, which is read again every minute.
type reloadedCert struct {
	cert, key string

	mu   sync.Mutex
	pair *tls.Certificate
	read time.Time
}

func (r *reloadedCert) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pair != nil && time.Since(r.read) < time.Minute {
		return r.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(r.cert, r.key)
	if err != nil {
		if r.pair != nil {
			return r.pair, nil // half-written: keep the old one
		}
		return nil, fmt.Errorf("read the TLS certificate: %w", err)
	}
	r.pair, r.read = &pair, time.Now()
	return r.pair, nil
}
