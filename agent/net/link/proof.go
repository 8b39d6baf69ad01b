package link

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Proof is whether a host that has a public address can be reached there.
type Proof struct {
	At     time.Time `json:"at"`
	Relays int       `json:"relays"` // that the platform has; 0: there is nothing to prove it by
	Direct bool      `json:"direct"` // what a relay sent, unasked for as a firewall sees it, arrived
	Why    string    `json:"why,omitempty"`
}

// Prove asks the platform's relays to send to a port of this host to which the host has sent nothing, and reports
// whether anything arrives within the wait of cfg.
func Prove(ctx context.Context, cfg ReachConfig) (Proof, error) {
	origin, err := originOf(cfg.URL)
	if err != nil {
		return Proof{}, err
	}
	client, err := platformClient(cfg.CA)
	if err != nil {
		return Proof{}, err
	}
	known, err := endpoints(ctx, client, origin)
	if err != nil {
		return Proof{}, err
	}
	p := Proof{At: time.Now()}
	if known == nil || len(known.Relays) == 0 {
		return p, nil
	}
	p.Relays = len(known.Relays)
	if cfg.Wait == 0 {
		cfg.Wait = 4 * time.Second
	}
	if err := proveBy(ctx, known.Relays, cfg.Wait); err != nil {
		p.Why = err.Error()
		return p, nil
	}
	p.Direct = true
	return p, nil
}

// proveBy returns nil if a message of one of the relays arrives at a fresh socket.
func proveBy(ctx context.Context, relays []string, wait time.Duration) error {
	listener, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	defer listener.Close()
	var nonce [agentapi.RelayNonceSize]byte
	if _, err := rand.Read(nonce[:]); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	port := uint16(listener.LocalAddr().(*net.UDPAddr).Port)
	for _, address := range relays {
		conn, err := new(net.Dialer).DialContext(ctx, "udp", address)
		if err != nil {
			continue // the others may do
		}
		defer conn.Close()
		go sendReach(ctx, conn, port, nonce)
	}
	stop := context.AfterFunc(ctx, func() { _ = listener.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	b := make([]byte, 256)
	for {
		n, _, err := listener.ReadFromUDPAddrPort(b)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("none of %d relays reached UDP port %d here within %v", len(relays), port, wait)
		case err != nil:
			return err
		case string(b[:n]) == string(agentapi.Reached(nonce)):
			return nil
		}
	}
}

// sendReach sends Reach messages to one relay until ctx ends or conn is closed: any datagram may be lost.
func sendReach(ctx context.Context, conn net.Conn, port uint16, nonce [agentapi.RelayNonceSize]byte) {
	var cookie [agentapi.RelayCookieSize]byte
	b := make([]byte, 256)
	for ctx.Err() == nil {
		if _, err := conn.Write(agentapi.Reach(cookie, port, nonce)); errors.Is(err, net.ErrClosed) {
			return
		}
		_ = conn.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := conn.Read(b)
		if err == nil && agentapi.RelayKind(b[:n]) == agentapi.RelayChallenge && n == 4+len(cookie) {
			copy(cookie[:], b[4:n])
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}
