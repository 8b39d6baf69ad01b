package hostlink

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"time"
)

// Config configures a Link.
type Config struct {
	// Secret is the platform's secret, from which the keys that replicas share are derived: at least 32 bytes, the same on
	// every replica.
	Secret []byte
	// Name is this replica's name, for display.
	Name string

	// Listen is the host:port where hosts connect with TLS; port 0 selects a free port. Unused with NATSURL.
	Listen string
	// WebSocketListen is the host:port where hosts connect with WebSocket over TLS, for networks that allow only port 443;
	// "" = none.
	WebSocketListen string
	// RouteListen and RouteURL connect the NATS servers of replicas: the host:port to listen on, and the
	// nats-route://host:port at which other replicas reach it. Required with more than one replica and no NATSURL.
	RouteListen, RouteURL string
	// NATSURL is an external NATS with the configuration from NATSConfig; "" = embedded. NATSCA is the file of the CA that
	// verifies it; "" = the system's roots.
	NATSURL, NATSCA string

	// CertFile and KeyFile are the server certificate for Listen and WebSocketListen; CAFile is the CA with which agents
	// verify it ("" = their system's roots). If all are empty, a certificate for Names is created, signed by a CA derived
	// from Secret.
	CertFile, KeyFile, CAFile string
	Names                     []string

	// AgentURLs are the addresses, tls:// and wss://, to which hosts connect after enrolment; empty = derived from Listen
	// and WebSocketListen.
	AgentURLs []string
	// StreamURL is the address at which hosts dial back to this replica, https://name[:port]; see package dialback.
	StreamURL string
	// StreamDomain is the domain that contains the StreamURLs of all replicas. Hosts receive it at enrolment and never
	// change it; "" = the host name in StreamURL.
	StreamDomain string
	// StreamCA is the CA in PEM with which agents verify StreamURL; "" = their system's roots.
	StreamCA string
	// Origins are the addresses at which agents may enrol: scheme://host[:port].
	Origins []string
	// Relays are the host:port (UDP) of all relays, as hosts reach them. If there are any, hosts behind routers can join
	// clusters of several hosts.
	Relays []string
	// AllowSimulated allows hosts with simulated GPUs to enrol. For sandboxes only.
	AllowSimulated bool

	// ReportContext and ConnectContext return the contexts in which reports of hosts are handled and in which their
	// connections are authorised, derived from the given one. They can limit the database connections of each; nil = the
	// given context.
	ReportContext, ConnectContext func(context.Context) context.Context

	HeartbeatEvery time.Duration // 0 = 5 s
	FlushEvery     time.Duration // how often telemetry is stored; 0 = 30 s
	Now            func() time.Time
	Log            *slog.Logger
}

func (c *Config) complete() error {
	if len(c.Secret) < 32 {
		return errors.New("the platform secret must have at least 32 bytes")
	}
	if c.NATSURL == "" && c.Listen == "" {
		return errors.New("neither an address for hosts to connect to nor an external NATS is set")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("certificate and key go together")
	}
	if c.StreamDomain == "" && c.StreamURL != "" {
		u, err := url.Parse(c.StreamURL)
		if err != nil || u.Hostname() == "" {
			return fmt.Errorf("stream URL %q: want https://name[:port]", c.StreamURL)
		}
		c.StreamDomain = u.Hostname()
	}
	if c.HeartbeatEvery == 0 {
		c.HeartbeatEvery = 5 * time.Second
	}
	if c.FlushEvery == 0 {
		c.FlushEvery = 30 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Name == "" {
		c.Name, _ = os.Hostname()
	}
	return nil
}

// serverTLS returns the TLS configuration for hosts, and the CA in PEM with which they verify it.
func (c *Config) serverTLS(k *keys) (*tls.Config, string, error) {
	if c.CertFile == "" {
		t, err := k.serverTLS(c.names(), c.Now)
		return t, k.caPEM, err
	}
	cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, "", fmt.Errorf("certificate: %w", err)
	}
	ca, err := c.ca(c.CAFile)
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, ca, err
}

func (c *Config) ca(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("CA: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return "", fmt.Errorf("no certificate in %s", file)
	}
	return string(pem), nil
}

// names returns the names for which a created certificate must be valid.
func (c *Config) names() []string {
	names := append([]string{"localhost", "127.0.0.1", "::1"}, c.Names...)
	if h, _, err := net.SplitHostPort(c.Listen); err == nil && h != "" {
		names = append(names, h)
	}
	for _, s := range c.AgentURLs {
		if u, err := url.Parse(s); err == nil && u.Hostname() != "" {
			names = append(names, u.Hostname())
		}
	}
	return names
}
