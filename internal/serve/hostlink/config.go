package hostlink

import (
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

// Config of a Link.
type Config struct {
	// Secret derives the keys that replicas share: at least 32 bytes, the same on every replica.
	Secret []byte
	// Name of this replica, for people.
	Name string

	// Listen is where hosts connect by TLS, host:port; port 0 takes a free one. Unused with NATSURL.
	Listen string
	// WebSocketListen is where they connect by WebSocket over TLS where nothing but 443 gets out; "" = nowhere.
	WebSocketListen string
	// RouteListen and RouteURL let replicas' NATS servers find each other: host:port to listen on, and
	// nats-route://host:port as others reach it. Needed with more than one replica and no NATSURL.
	RouteListen, RouteURL string
	// NATSURL is an external NATS, configured as NATSConfig says; "" = embedded. NATSCA verifies it; "" = system's.
	NATSURL, NATSCA string

	// CertFile and KeyFile are the server certificate for Listen and WebSocketListen, CAFile what agents verify it
	// with ("" = their system's roots). All empty: one is made for Names, by a CA derived from Secret.
	CertFile, KeyFile, CAFile string
	Names                     []string

	// AgentURLs is what enrolled hosts are told to connect to, tls:// and wss://; empty: made of Listen and
	// WebSocketListen.
	AgentURLs []string
	// StreamURL is where hosts dial back to this very replica, https://name[:port]; see package dialback.
	StreamURL string
	// StreamDomain is the domain all replicas' StreamURLs are under, fixed at enrolment; "" = StreamURL's host.
	StreamDomain string
	// StreamCA is the PEM agents verify StreamURL with; "" = their system's roots.
	StreamCA string
	// Origins are the addresses agents may have been told to enrol at: scheme://host[:port].
	Origins []string
	// Relays are host:port (UDP) of every relay, as hosts reach them. With any, hosts behind routers take part in clusters
	// of several hosts.
	Relays []string
	// AllowSimulated lets hosts with simulated GPUs enrol. Sandbox only.
	AllowSimulated bool

	HeartbeatEvery time.Duration // 0 = 5 s
	FlushEvery     time.Duration // of telemetry to its history; 0 = 30 s
	Now            func() time.Time
	Log            *slog.Logger
}

func (c *Config) complete() error {
	if len(c.Secret) < 32 {
		return errors.New("hostlink: the platform secret must have at least 32 bytes")
	}
	if c.NATSURL == "" && c.Listen == "" {
		return errors.New("hostlink: neither an address for hosts to connect to nor an external NATS is set")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("hostlink: certificate and key go together")
	}
	if c.StreamDomain == "" && c.StreamURL != "" {
		u, err := url.Parse(c.StreamURL)
		if err != nil || u.Hostname() == "" {
			return fmt.Errorf("hostlink: stream URL %q: want https://name[:port]", c.StreamURL)
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

// serverTLS is what hosts see, and the PEM they verify it with.
func (c *Config) serverTLS(k *keys) (*tls.Config, string, error) {
	if c.CertFile == "" {
		t, err := k.serverTLS(c.names(), c.Now)
		return t, k.caPEM, err
	}
	cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, "", fmt.Errorf("hostlink: certificate: %w", err)
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
		return "", fmt.Errorf("hostlink: CA: %w", err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return "", fmt.Errorf("hostlink: no certificate in %s", file)
	}
	return string(pem), nil
}

// names are what a certificate of our own making must be valid for.
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
