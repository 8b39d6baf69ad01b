// Package testnet simulates several machines on this one, for tests: hosts with their own network and process
// namespaces, connected by Ethernet segments, behind routers that translate addresses, over links that can be cut,
// delayed and made lossy, and with a Docker engine each if needed.
//
// Invariants:
//   - A net does not touch the machine's own network: it changes no link, address, route or rule of it, and has no way
//     out. A packet can only reach what the test has created.
//   - Links live in unnamed namespaces, so nets of any number of processes never conflict.
//   - A net ends with its test, and with the test's process however that ends: each host's first process reads a pipe
//     that only the test holds, and when it ends the kernel ends everything else in the host. The next test removes
//     what a killed test leaves on the disk.
//
// It needs root.
package testnet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Net is the set of machines of one test.
type Net struct {
	t      testing.TB
	dir    string
	fabric *space // holds the segments' bridges and the far ends of all links

	mu    sync.Mutex
	links int
	hosts map[string]*Host
}

// New returns an empty net that ends with the test.
func New(t testing.TB) *Net {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("testnet: network namespaces need root: run the tests as root")
	}
	dir, err := claimFolder()
	if err != nil {
		t.Fatal("testnet:", err)
	}
	n := &Net{t: t, dir: dir.path, hosts: map[string]*Host{}}
	t.Cleanup(func() {
		if err := dir.release(); err != nil {
			t.Error("testnet:", err)
		}
	})
	n.fabric, err = newSpace(dir.path, "fabric")
	if err != nil {
		t.Fatal("testnet:", err)
	}
	t.Cleanup(n.fabric.end)
	return n
}

// Dir returns a folder that is removed with the net, reachable by every user and from every host under the same path.
func (n *Net) Dir() string { return n.dir }

// Segment is an Ethernet segment: its members reach each other and nothing else.
type Segment struct {
	net    *Net
	bridge string
	mtu    int // 0: Ethernet's usual 1500
}

// SetMTU sets the size of the frames that the segment carries, for the hosts that join it from now on. A host that
// raises only its own device's MTU loses its larger frames.
func (s *Segment) SetMTU(mtu int) { s.mtu = mtu }

// Segment adds a segment.
func (n *Net) Segment() *Segment {
	n.t.Helper()
	s := &Segment{net: n, bridge: n.name("br")}
	err := n.fabric.inside(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = s.bridge
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
			return err
		}
		link, err := netlink.LinkByName(s.bridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	if err != nil {
		n.t.Fatal("testnet: make a segment:", err)
	}
	return s
}

func (n *Net) name(prefix string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links++
	return fmt.Sprintf("%s%d", prefix, n.links)
}

// ground is the parent of all nets' folders: users other than root, such as PostgreSQL's, must be able to pass through
// it.
const ground = "/var/tmp"

// folder is a net's folder on the disk, locked while its process runs.
type folder struct {
	path string
	lock *os.File
}

// claimFolder removes what killed tests left and creates a folder for this one.
func claimFolder() (*folder, error) {
	stale, err := filepath.Glob(filepath.Join(ground, "muster-net-*"))
	if err != nil {
		return nil, err
	}
	for _, path := range stale {
		if err := sweep(path); err != nil {
			return nil, fmt.Errorf("remove what a killed test left: %w", err)
		}
	}
	path, err := os.MkdirTemp(ground, "muster-net-")
	if err != nil {
		return nil, err
	}
	f := &folder{path: path}
	if err := os.Chmod(path, 0o711); err != nil {
		return nil, err
	}
	// The file is locked before it gets the name that sweep looks for, so no other test can lock it first.
	unnamed := filepath.Join(path, "unlocked")
	f.lock, err = os.OpenFile(unnamed, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("lock %s: %w", unnamed, err)
	}
	return f, os.Rename(unnamed, filepath.Join(path, "lock"))
}

// sweep removes a folder that no process holds. A folder without a lock file is still being created.
func sweep(path string) error {
	lock, err := os.Open(filepath.Join(path, "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	switch err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil
	case err != nil:
		return err
	}
	return remove(path)
}

func (f *folder) release() error {
	err := remove(f.path)
	return errors.Join(err, f.lock.Close())
}
