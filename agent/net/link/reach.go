package link

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// ReachConfig configures a check of the platform's ports.
type ReachConfig struct {
	URL   string        // the platform's address for agents, as in EnrollConfig
	CA    []byte        // PEM of the CA that verifies the address; nil = the system's roots
	Known *Identity     // identity of an enrolled host, else nil: used if the platform does not list its addresses
	Wait  time.Duration // time limit for replies of link and relays; 0 = 8 s
}

// Reached is the result for one address; a nil error means that it can be used.
type Reached struct {
	Address string
	Err     error
}

// Reach is which parts of a platform this host can reach. The check neither identifies the host nor changes anything.
type Reach struct {
	Platform Reached
	Known    bool      // whether the platform listed where hosts connect
	Link     []Reached // addresses of the agent's connection, TCP
	Relays   []Reached // UDP
}

// LookAround tries every address that a host must reach: the platform's by HTTPS, its link up to the point where the
// platform asks for credentials, and its relays until they reply. It fails only if the address or the CA is unusable.
func LookAround(ctx context.Context, cfg ReachConfig) (Reach, error) {
	origin, err := originOf(cfg.URL)
	if err != nil {
		return Reach{}, err
	}
	client, err := platformClient(cfg.CA)
	if err != nil {
		return Reach{}, err
	}
	if cfg.Wait == 0 {
		cfg.Wait = 8 * time.Second
	}
	r := Reach{Platform: Reached{Address: origin}}
	found, err := endpoints(ctx, client, origin)
	r.Platform.Err, r.Known = err, found != nil
	if found == nil && cfg.Known != nil {
		found = &agentapi.Endpoints{NATS: cfg.Known.NATS, NATSCA: cfg.Known.NATSCA}
	}
	if found == nil {
		return r, nil
	}
	var wg sync.WaitGroup
	if len(found.NATS) > 0 {
		for _, a := range oneKind(found.NATS) { // the agent never uses the others
			r.Link = append(r.Link, Reached{Address: a})
		}
	}
	for _, a := range found.Relays {
		r.Relays = append(r.Relays, Reached{Address: a})
	}
	for i := range r.Link {
		wg.Go(func() { r.Link[i].Err = knock(r.Link[i].Address, found.NATSCA, cfg.Wait) })
	}
	for i := range r.Relays {
		wg.Go(func() { r.Relays[i].Err = challenge(ctx, r.Relays[i].Address, cfg.Wait) })
	}
	wg.Wait()
	return r, nil
}

// endpoints asks the platform where hosts connect; it returns nil without an error from a platform that is too old to
// list its addresses.
func endpoints(ctx context.Context, client *http.Client, origin string) (*agentapi.Endpoints, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+agentapi.EndpointsPath, nil)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the platform's address is not usable")
	}
	res, err := client.Do(req)
	if err != nil {
		if broken := new(url.Error); errors.As(err, &broken) {
			err = broken.Err // callers add the address
		}
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusNotFound:
		return nil, nil
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers with status %d", res.StatusCode)
	}
	var e agentapi.Endpoints
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("what answers there is not the platform: %w", err)
	}
	return &e, nil
}

// knock connects to the link up to the point where the platform asks for credentials. It shows no key: a second
// connection with the host's own key would look like a copy of the host.
func knock(address, ca string, wait time.Duration) error {
	roots, err := pool(ca)
	if err != nil {
		return err
	}
	opts := nats.GetDefaultOptions()
	opts.Servers, opts.Timeout, opts.AllowReconnect, opts.Secure = []string{address}, wait, false, true
	opts.TLSConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	nc, err := opts.Connect()
	switch {
	case errors.Is(err, nats.ErrAuthorization):
		return nil // refused by the platform: everything before worked
	case errors.Is(err, nats.ErrNoServers):
		return errors.New("the connection is refused") // the cause of what the library reports as "no servers"
	case err != nil:
		return err
	}
	nc.Close()
	return nil
}

// challenge sends hello messages with an unknown token to a relay until it replies with the cookie that it gives to
// every sender.
func challenge(ctx context.Context, address string, wait time.Duration) error {
	resolve, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(resolve, "udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	hello := agentapi.NewRelayToken(nil, agentapi.RelayClaims{}).Hello([agentapi.RelayCookieSize]byte{})
	last := fmt.Errorf("no answer to UDP within %v", wait)
	for range hellos { // any datagram may be lost
		if _, err := conn.Write(hello); err != nil {
			last = err // mostly about the previous datagram: nothing listens there
		}
		if err := conn.SetReadDeadline(time.Now().Add(wait / hellos)); err != nil {
			return err
		}
		b := make([]byte, 256)
		n, err := conn.Read(b)
		if err == nil && agentapi.RelayKind(b[:n]) == agentapi.RelayChallenge {
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			last = err
		}
	}
	return last
}

// hellos is how many hello messages are sent to a relay.
const hellos = 8
