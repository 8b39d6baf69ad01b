package overlay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/overlay/paths"
)

// Traffic is what a run's overlay has exchanged since it first stood, over all its processes: bytes.
type Traffic = paths.Sum

// ReadTraffic is what the overlay of a lease folder has written down, whether or not its process lives: all but what
// moved in the last second, or came to less than tallyGrain, of one that runs or was killed; all of one that Stop has
// ended. Nothing counted yet is zero.
func ReadTraffic(leaseDir string) (Traffic, error) {
	t, err := readTally(folder(leaseDir))
	return t.Sum, err
}

// tally is trafficFile.
type tally struct {
	Sum Traffic `json:"sum"`
	// Read is what the kernel's device showed of its peers when that was added to the sum, by public key: a device lives
	// on without its process.
	Read map[string]reading `json:"read,omitempty"`
}

type reading struct {
	Rx int64 `json:"rx"`
	Tx int64 `json:"tx"`
}

func readTally(dir string) (t tally, err error) {
	err = readJSON(filepath.Join(dir, trafficFile), &t)
	if errors.Is(err, fs.ErrNotExist) {
		return tally{}, nil
	}
	if err != nil {
		return tally{}, fmt.Errorf("read what the overlay counted: %w", err)
	}
	return t, nil
}

// usageFile keeps a run's tally on the disk.
type usageFile struct {
	dir    string
	former Traffic // what former processes counted

	mu       sync.Mutex
	written  Traffic
	noted    time.Time
	networks time.Time
}

const (
	// tallyEvery is how often what was counted is written down, where at least tallyGrain of it is not.
	tallyEvery = time.Second
	tallyGrain = 64 << 10
	// networksEvery is how often it is looked which networks the host is in: links come and go.
	networksEvery = 10 * time.Second
)

// open takes up what former processes have counted. What cannot be read begins anew, which its reader notices: sums
// that went back.
func (b *usageFile) open(dir string) tally {
	was, err := readTally(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		was = tally{}
	}
	b.dir, b.former, b.written = dir, was.Sum, was.Sum
	return was
}

// keep writes down what the tunnel has counted now and then, and tells it which networks the host is in.
func (b *usageFile) keep(t tunnel, now time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if now.Sub(b.networks) >= networksEvery {
		b.networks = now
		nets, err := hostNetworks()
		if err != nil {
			return err
		}
		t.near(nets)
	}
	if now.Sub(b.noted) < tallyEvery {
		return nil
	}
	b.noted = now
	sum := t.tally()
	if s := b.former.Plus(sum.Sum); s.Sent+s.Received-b.written.Sent-b.written.Received < tallyGrain {
		return nil
	}
	return b.write(sum)
}

// note writes down all that the tunnel has counted.
func (b *usageFile) note(t tunnel) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.write(t.tally())
}

func (b *usageFile) write(t tally) error {
	t.Sum = b.former.Plus(t.Sum)
	if err := writeJSON(filepath.Join(b.dir, trafficFile), t); err != nil {
		return fmt.Errorf("write down what was counted: %w", err)
	}
	b.written = t.Sum
	return nil
}

// lastNote has the process of an overlay folder write down what it has counted. One that does not answer has had its
// chance.
func lastNote(ctx context.Context, dir string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = call(ctx, dir, request{Op: "note"})
}

// hostNetworks are the networks in which this process's namespace has an address.
func hostNetworks() ([]netip.Prefix, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the host's networks: %w", err)
	}
	var out []netip.Prefix
	for _, a := range addrs {
		if n, err := netip.ParsePrefix(a.String()); err == nil && n.Bits() > 0 {
			out = append(out, n.Masked())
		}
	}
	return out, nil
}

// meter adds up what the kernel's device shows of its peers. The device counts the datagrams' contents; the headers
// around each, 28 or 48 bytes, are not in it.
type meter struct {
	mu   sync.Mutex
	line paths.Line
	read map[wgtypes.Key]reading
}

// resume goes on where a former process has stopped reading the same device.
func (m *meter) resume(was map[string]reading) {
	m.read = map[wgtypes.Key]reading{}
	for text, r := range was {
		if key, err := wgtypes.ParseKey(text); err == nil {
			m.read[key] = r
		}
	}
}

// take adds what is new in the device's counters. Those of a peer that went back, or was not there, began at 0: it was
// added to the device anew.
func (m *meter) take(now map[wgtypes.Key]counter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	read := make(map[wgtypes.Key]reading, len(now))
	for key, c := range now {
		before := m.read[key]
		if c.rx < before.Rx || c.tx < before.Tx {
			before = reading{}
		}
		read[key] = reading{c.rx, c.tx}
		to, _ := netip.ParseAddrPort(c.endpoint) // where packets go and come from since the last look, or went until now
		m.line.Add(to.Addr(), c.tx-before.Tx, c.rx-before.Rx)
	}
	m.read = read
}

func (m *meter) tally() tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := tally{Sum: m.line.Sum(), Read: make(map[string]reading, len(m.read))}
	for key, r := range m.read {
		t.Read[key.String()] = r
	}
	return t
}
