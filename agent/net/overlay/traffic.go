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

	"github.com/musterhq/muster/agent/net/overlay/paths"
)

// Traffic is how many bytes a run's overlay has exchanged since it was first up, over all its processes.
type Traffic = paths.Sum

// ReadTraffic returns the counters that the overlay of a lease folder has stored, whether or not its process runs. For
// a process that runs or was killed they may lack the last second, and amounts below tallyGrain; after Stop they are
// complete. If nothing was counted yet, all are zero.
func ReadTraffic(leaseDir string) (Traffic, error) {
	t, err := readTally(folder(leaseDir))
	return t.Sum, err
}

// tally is the content of trafficFile.
type tally struct {
	Sum Traffic `json:"sum"`
	// Read is the kernel device's counters, by public key, when they were last added to the sum: a device outlives its
	// process.
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

// usageFile stores a run's tally.
type usageFile struct {
	dir    string
	former Traffic // what earlier processes counted

	mu       sync.Mutex
	written  Traffic
	noted    time.Time
	networks time.Time
}

const (
	// tallyEvery is how often the counters are stored if they grew by at least tallyGrain.
	tallyEvery = time.Second
	tallyGrain = 64 << 10
	// networksEvery is how often the host's networks are listed again, because links come and go.
	networksEvery = 10 * time.Second
)

// open reads what earlier processes have counted. If the file is unreadable the counters start at zero, which readers
// notice because sums decreased.
func (b *usageFile) open(dir string) tally {
	was, err := readTally(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		was = tally{}
	}
	b.dir, b.former, b.written = dir, was.Sum, was.Sum
	return was
}

// keep periodically stores what the tunnel has counted, and passes it the list of the host's networks.
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

// note stores everything that the tunnel has counted.
func (b *usageFile) note(t tunnel) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.write(t.tally())
}

// hand stores everything that the tunnel has counted before another one takes its place. The next call of keep passes
// that one the host's networks.
func (b *usageFile) hand(t tunnel) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	sum := t.tally()
	sum.Read = nil // a device of the other kind begins at zero
	err := b.write(sum)
	b.former, b.networks = b.written, time.Time{}
	return err
}

func (b *usageFile) write(t tally) error {
	t.Sum = b.former.Plus(t.Sum)
	if err := writeJSON(filepath.Join(b.dir, trafficFile), t); err != nil {
		return fmt.Errorf("write down what was counted: %w", err)
	}
	b.written = t.Sum
	return nil
}

// lastNote asks the process of an overlay folder to store what it has counted. It ignores a process that does not
// answer.
func lastNote(ctx context.Context, dir string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, _ = call(ctx, dir, request{Op: "note"})
}

// hostNetworks lists the networks in which this process's namespace has an address.
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

// meter sums the kernel device's counters of its peers. The device counts the payload of datagrams, without the headers
// of 28 or 48 bytes each.
type meter struct {
	mu   sync.Mutex
	line paths.Line
	read map[wgtypes.Key]reading
}

// resume continues where an earlier process stopped reading the same device.
func (m *meter) resume(was map[string]reading) {
	m.read = map[wgtypes.Key]reading{}
	for text, r := range was {
		if key, err := wgtypes.ParseKey(text); err == nil {
			m.read[key] = r
		}
	}
}

// take adds the growth of the device's counters. A counter that decreased, or whose peer is new, started at 0, because
// the peer was added to the device again.
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
		to, _ := netip.ParseAddrPort(c.endpoint) // where packets have gone to and come from since the last read
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
