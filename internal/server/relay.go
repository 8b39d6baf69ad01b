package server

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/serve/relay"
)

// These are the roles of a server process.
const (
	RoleAll   = "all"   // everything except a relay, and a relay too if MUSTER_RELAY_LISTEN is set
	RoleRelay = "relay" // only a relay: no database, no TLS
)

// relaySecret returns the secret that the control plane and relays share: a separate one, so that a relay's machine
// need not hold the platform's, or one derived from it.
func (c *Config) relaySecret() ([]byte, error) {
	if c.RelaySecret != "" {
		b, err := base64.StdEncoding.DecodeString(string(c.RelaySecret))
		if err != nil || len(b) < 32 {
			return nil, fault.InvalidField("MUSTER_RELAY_SECRET", "must be at least 32 random bytes in base64 (openssl rand "+
				"-base64 32), the same on servers and relays")
		}
		return b, nil
	}
	raw, err := c.linkSecret()
	if err != nil || len(raw) < 32 {
		return nil, fault.InvalidField("MUSTER_RELAY_SECRET", "is not set, and neither is MUSTER_SECRET")
	}
	return hkdf.Key(sha256.New, raw, nil, "muster relay v1", 32)
}

// checkRelays refuses addresses that no host could use.
func checkRelays(all []string) error {
	for _, r := range all {
		host, port, err := net.SplitHostPort(r)
		if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 1 || n > 65535 || host == "" {
			return fmt.Errorf("%q is no host:port", r)
		}
	}
	return nil
}

// startRelay starts the relay of this process.
func (c *Config) startRelay(log *slog.Logger) (*relay.Relay, error) {
	secret, err := c.relaySecret()
	if err != nil {
		return nil, err
	}
	return relay.Start(relay.Config{Listen: c.RelayListen, Secret: secret, RateMbps: c.RelayMbps, Log: log})
}

// openRelay starts a relay in addition to the server's other roles, if one is configured.
func (s *Server) openRelay(context.Context) (err error) {
	if s.cfg.RelayListen == "" {
		return nil
	}
	if s.relay, err = s.cfg.startRelay(s.log); err != nil {
		return err
	}
	s.onClose(s.relay.Close)
	if len(s.cfg.Relays) == 0 {
		s.cfg.Relays = []string{s.relay.Addr().String()}
	}
	return nil
}

// RunRelay serves as a relay only until a signal arrives.
func RunRelay(ctx context.Context, cfg Config, out io.Writer) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	log := newLogger(out, cfg)
	if cfg.RelayListen == "" {
		cfg.RelayListen = ":3478"
	}
	r, err := cfg.startRelay(log)
	if err != nil {
		return err
	}
	l, err := listen(cfg.MetricsListen, "", "")
	if err != nil {
		return errors.Join(err, r.Close(context.WithoutCancel(ctx)))
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), r)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	l.handler = mux
	l.serve(log)
	log.Info("relaying", "version", cfg.Version, "udp", r.Addr(), "metrics", l.addr())
	<-ctx.Done()
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain)
	defer cancel()
	return errors.Join(r.Close(down), l.close(down))
}
