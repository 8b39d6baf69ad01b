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

// ReachConfig is what a look at the platform's ports needs.
type ReachConfig struct {
	URL   string        // the platform's address for agents, as EnrollConfig has it
	CA    []byte        // PEM that the address is verified with; nil = the system's roots
	Known *Identity     // of an enrolled host, else nil: what it was told, should the platform not say it
	Wait  time.Duration // for the answers of link and relays; 0 = 8 s
}

// Reached is what one address answered: nil for what a host needs.
type Reached struct {
	Address string
	Err     error
}

// Reach is what of a platform can be reached from here. Nothing of it says who asks, and nothing is changed by it.
type Reach struct {
	Platform Reached
	Known    bool      // the platform said where else hosts connect
	Link     []Reached // where the agent keeps its connection, TCP
	Relays   []Reached // UDP
}

// LookAround tries every address that a host must reach: the platform's by HTTPS, its link as far as the platform asks
// who is there, its relays until they answer. It fails only when the address or the CA is not usable.
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
	told, err := endpoints(ctx, client, origin)
	r.Platform.Err, r.Known = err, told != nil
	if told == nil && cfg.Known != nil {
		told = &agentapi.Endpoints{NATS: cfg.Known.NATS, NATSCA: cfg.Known.NATSCA}
	}
	if told == nil {
		return r, nil
	}
	var wg sync.WaitGroup
	if len(told.NATS) > 0 {
		for _, a := range oneKind(told.NATS) { // the others are never used
			r.Link = append(r.Link, Reached{Address: a})
		}
	}
	for _, a := range told.Relays {
		r.Relays = append(r.Relays, Reached{Address: a})
	}
	for i := range r.Link {
		wg.Go(func() { r.Link[i].Err = knock(r.Link[i].Address, told.NATSCA, cfg.Wait) })
	}
	for i := range r.Relays {
		wg.Go(func() { r.Relays[i].Err = challenge(ctx, r.Relays[i].Address, cfg.Wait) })
	}
	wg.Wait()
	return r, nil
}

// endpoints asks the platform where hosts connect; nil, and no error, from one that is too old to say.
func endpoints(ctx context.Context, client *http.Client, origin string) (*agentapi.Endpoints, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+agentapi.EndpointsPath, nil)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the platform's address is not usable")
	}
	res, err := client.Do(req)
	if err != nil {
		if broken := new(url.Error); errors.As(err, &broken) {
			err = broken.Err // the address is named beside it
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

// knock goes as far with the link as the platform's asking who is there. It shows no key: a second connection with the
// host's own would look like a copy of it.
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
		return nil // by the platform: everything before it went well
	case errors.Is(err, nats.ErrNoServers):
		return errors.New("the connection is refused") // of what the library calls no servers
	case err != nil:
		return err
	}
	nc.Close()
	return nil
}

// challenge says hello to a relay, with a token it does not know, until it answers with the cookie it gives to
// everybody.
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
	for range hellos { // any may be lost
		if _, err := conn.Write(hello); err != nil {
			last = err // of the datagram before, mostly: nobody listens there
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

// hellos is how often a relay is asked.
const hellos = 8
