package network

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/testnet"
)

// pair is two machines with a guest each, and a relay.
type pair struct {
	self   string
	dir    string
	hosts  [2]*testnet.Host
	guests [2]*testnet.Host
	ours   [2]*overlay.Handle
	leases [2]string
	ends   []func()
}

func at(n int) string          { return fmt.Sprintf("10.1.0.%d", n+1) }
func ourAddress(n int) string  { return fmt.Sprintf("10.77.0.%d", n+1) }
func bareAddress(n int) string { return fmt.Sprintf("10.78.0.%d", n+1) }

const (
	relayAt  = "10.1.0.9"
	barePort = 51820
)

func newPair(ctx context.Context, n *testnet.Net, dir, muster string) (p *pair, err error) {
	p = &pair{dir: dir}
	if p.self, err = os.Executable(); err != nil {
		return nil, err
	}
	s := n.Segment()
	r := n.Host("relay")
	r.Join(s, relayAt+"/24")
	secret := bytes.Repeat([]byte{7}, 32)
	relay := r.Command(ctx, muster, "server", "--role", "relay")
	relay.Env = append(os.Environ(), "MUSTER_RELAY_SECRET="+base64.StdEncoding.EncodeToString(secret),
		"MUSTER_RELAY_LISTEN="+relayAt+":3478", "MUSTER_RELAY_MBPS=100000")
	if err := relay.Start(); err != nil {
		return nil, err
	}
	go relay.Wait() // it ends with its machine
	for i := range p.hosts {
		p.hosts[i], p.guests[i] = n.Host(fmt.Sprintf("host%d", i)), n.Host(fmt.Sprintf("guest%d", i))
		p.hosts[i].Join(s, at(i)+"/24")
		p.leases[i] = filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(leasefiles.At(p.leases[i]).Overlay, 0o700); err != nil {
			return nil, err
		}
		err := p.hosts[i].Inside(func() (err error) {
			p.ours[i], err = overlay.Ensure(ctx, overlay.Config{
				Dir:       p.leases[i],
				Ref:       agentapi.LeaseRef{Lease: fmt.Sprintf("bench_%d", i), Epoch: 1},
				NetNS:     p.guests[i].NetNS(),
				Address:   ourAddress(i),
				CIDR:      "10.77.0.0/20",
				Advertise: []string{at(i)},
				Userspace: true,
				Command:   []string{p.self, "overlay"},
			})
			return err
		})
		if err != nil {
			return nil, errors.Join(err, p.end())
		}
		token := agentapi.NewRelayToken(secret, agentapi.RelayClaims{
			Cluster: [16]byte{1},
			Rank:    uint16(i),
			Epoch:   1,
			Expires: time.Now().Add(time.Hour),
		})
		if err := p.ours[i].SetRelays(ctx, []string{relayAt + ":3478"}, token.Text()); err != nil {
			return nil, errors.Join(err, p.end())
		}
	}
	for i, h := range p.ours {
		o := 1 - i
		peer := agentapi.Peer{Rank: o, Address: ourAddress(o), Key: p.ours[o].PublicKey(), Endpoints: p.ours[o].Endpoints()}
		if err := h.SetPeers(ctx, []agentapi.Peer{peer}); err != nil {
			return nil, errors.Join(err, p.end())
		}
	}
	return p, nil
}

// end stops the overlays and what else was started.
func (p *pair) end() error {
	var errs []error
	for _, dir := range p.leases {
		if dir != "" {
			errs = append(errs, overlay.Stop(context.Background(), dir))
		}
	}
	for _, f := range p.ends {
		f()
	}
	return errors.Join(errs...)
}

// settled waits until both reach each other this way and packets have grown to what it carries, and returns that.
func (p *pair) settled(ctx context.Context, path string) (mtu int, err error) {
	same := 0
	return mtu, await(ctx, "the overlay finds its way by "+path, func() (bool, error) {
		before := mtu
		mtu = 1 << 16
		for i, h := range p.ours {
			s, err := h.Status(ctx)
			if err != nil {
				return false, err
			}
			if len(s.Peers) != 1 || s.Peers[0].Path != path || s.Peers[0].LastHandshake.IsZero() {
				return false, fmt.Errorf("rank %d: %+v", i, s.Peers)
			}
			mtu = min(mtu, s.Peers[0].MTU)
		}
		if same++; mtu != before {
			same = 0
		}
		return same >= 100, nil // ten seconds without growing
	})
}

// startBare starts the WireGuard that is not ours.
func (p *pair) startBare(ctx context.Context, mtu int) error {
	var keys [2]wgtypes.Key
	for i := range keys {
		var err error
		if keys[i], err = wgtypes.GeneratePrivateKey(); err != nil {
			return err
		}
	}
	for i := range keys {
		cfg, err := json.Marshal(bareConfig{
			NetNS:    p.guests[i].NetNS(),
			Address:  bareAddress(i) + "/24",
			MTU:      mtu,
			Port:     barePort,
			Key:      keys[i],
			Peer:     keys[1-i].PublicKey(),
			Endpoint: fmt.Sprintf("%s:%d", at(1-i), barePort),
			Allowed:  bareAddress(1-i) + "/32",
		})
		if err != nil {
			return err
		}
		cmd := exec.CommandContext(ctx, p.self, "wireguard", string(cfg))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = p.hosts[i].Inside(cmd.Start)
		}
		if err != nil {
			return err
		}
		p.ends = append(p.ends, func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		if _, err := out.Read(make([]byte, 1)); err != nil {
			return fmt.Errorf("the WireGuard without us does not start: %w", err)
		}
	}
	return nil
}

// iperf sends for some seconds from the first guest to the second, or both ways at once, and returns what arrived in
// Gbit/s: of the slower direction.
func (p *pair) iperf(ctx context.Context, to string, both bool) (float64, error) {
	args := []string{"--client", to, "--time", "4", "--omit", "1", "--json"}
	if both {
		args = append(args, "--bidir")
	}
	var v float64
	return v, await(ctx, "iperf3 sends to "+to, func() (done bool, err error) {
		server := p.guests[1].Command(ctx, "iperf3", "--server", "--one-off", "--bind", to)
		if err := server.Start(); err != nil {
			return false, err
		}
		defer func() {
			_ = server.Process.Kill()
			_ = server.Wait()
		}()
		time.Sleep(200 * time.Millisecond) // a client that comes too early is an attempt more
		out, err := p.guests[0].Command(ctx, "iperf3", args...).Output()
		if err != nil {
			return false, fmt.Errorf("iperf3: %w: %s", err, strings.TrimSpace(string(out)))
		}
		v, err = arrived(out, both)
		return err == nil, err
	})
}

// arrived reads what iperf3 says the receiver got, in Gbit/s; with both directions that of the slower one.
func arrived(out []byte, both bool) (float64, error) {
	type sum struct {
		Bits float64 `json:"bits_per_second"`
	}
	var r struct {
		Error string `json:"error"`
		End   struct {
			Received sum `json:"sum_received"`
			Reverse  sum `json:"sum_received_bidir_reverse"`
		} `json:"end"`
	}
	if err := json.Unmarshal(out, &r); err != nil {
		return 0, err
	}
	bits := r.End.Received.Bits
	if both {
		bits = min(bits, r.End.Reverse.Bits)
	}
	if bits <= 0 || r.Error != "" {
		return 0, fmt.Errorf("iperf3 reports no result: %s", r.Error)
	}
	return bits / 1e9, nil
}

// preflight has both guests measure, as before every job, and returns what the first one says.
func (p *pair) preflight(ctx context.Context) (out agentapi.Preflight, err error) {
	q := guest.PreflightRequest{
		LeaseRef:  agentapi.LeaseRef{Lease: "bench", Epoch: 1},
		Addresses: []string{ourAddress(0), ourAddress(1)},
	}
	var said [2]bytes.Buffer
	var cmds [2]*exec.Cmd
	for i := range cmds {
		q.Rank = i
		text, err := json.Marshal(q)
		if err != nil {
			return out, err
		}
		cmds[i] = p.guests[i].Command(ctx, p.self, "preflight")
		cmds[i].Stdin, cmds[i].Stdout, cmds[i].Stderr = bytes.NewReader(text), &said[i], os.Stderr
		if err := cmds[i].Start(); err != nil {
			return out, err
		}
	}
	if err := errors.Join(cmds[0].Wait(), cmds[1].Wait()); err != nil {
		return out, fmt.Errorf("preflight: %w", err)
	}
	if err := json.Unmarshal(said[0].Bytes(), &out); err != nil {
		return out, err
	}
	if !out.OK || len(out.PairGbps) != 2 {
		return out, fmt.Errorf("preflight: %s", out.Detail)
	}
	return out, nil
}
