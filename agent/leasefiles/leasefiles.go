// Package leasefiles defines the layout of a lease's folder on the host and writes the small files in it that
// containers mount.
//
// Only root can access the folder (0700); containers see only what is mounted from it. Files are replaced by rename
// except those that are mounted one by one (a file mount shows the old inode after a rename): these are written once
// per epoch, before the containers are created.
package leasefiles

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// Layout names the paths in a lease's folder.
type Layout struct {
	Dir        string
	Overlay    string // the overlay process's key, state, lock, socket
	Guest      string // mounted at guest.HoldDir in the guest only, writable
	HoldSocket string // socket of the guest
	Node       string // mounted at guest.NodeDir: read-only in the workload, writable in the guest
	Hosts      string // these three are mounted read-only over /etc/… in guest and workload
	ResolvConf string
	Hostname   string

	VolumesMoved string // what the run's volumes have moved over the host's line
}

// At returns the layout under dir.
func At(dir string) Layout {
	j := func(p ...string) string { return filepath.Join(append([]string{dir}, p...)...) }
	return Layout{
		Dir: dir, Overlay: j("overlay"), Guest: j("guest"), HoldSocket: j("guest", "hold.sock"), Node: j("node"),
		Hosts: j("etc", "hosts"), ResolvConf: j("etc", "resolv.conf"), Hostname: j("etc", "hostname"),
		VolumesMoved: j("volumes-moved.json"),
	}
}

// These are files in Layout.Node. releaseName opens the barrier when it appears, hostfileName is the host file of MPI
// and DeepSpeed, accelerateName a configuration of Hugging Face's launcher. sshName is a link to the injected binary,
// which reaches the other ranks under that name.
const (
	releaseName    = "release"
	hostfileName   = "hostfile"
	accelerateName = "accelerate.yaml"
	sshName        = "bin/ssh"
)

// Write creates the folder and its files for one epoch of a lease. resolvers are the name servers' addresses. It
// removes the barrier file of an earlier epoch. Writing again with the same arguments changes nothing.
func (l Layout) Write(spec agentapi.LeaseSpec, resolvers []netip.Addr) error {
	for _, d := range []struct {
		path string
		mode os.FileMode
	}{{l.Dir, 0o700}, {l.Overlay, 0o700}, {l.Guest, 0o700}, {l.Node, 0o755}, {filepath.Dir(l.Hosts), 0o755}} {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return fmt.Errorf("make the lease folder: %w", err)
		}
		if err := os.Chmod(d.path, d.mode); err != nil {
			return fmt.Errorf("make the lease folder: %w", err)
		}
	}
	if err := l.dropStaleRelease(spec.LeaseRef); err != nil {
		return err
	}
	for path, text := range map[string]string{
		l.Hosts:                               Hosts(spec),
		l.ResolvConf:                          ResolvConf(resolvers),
		l.Hostname:                            NodeName(spec.Rank) + "\n",
		l.Hostfile():                          Hostfile(spec),
		filepath.Join(l.Node, accelerateName): Accelerate(spec),
	} {
		if err := writeIfChanged(path, text); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Base(path), err)
		}
	}
	return l.linkSSH()
}

// Hostfile returns the path of the host file.
func (l Layout) Hostfile() string { return filepath.Join(l.Node, hostfileName) }

func (l Layout) linkSSH() error {
	link := filepath.Join(l.Node, sshName)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return fmt.Errorf("make the lease folder: %w", err)
	}
	if err := os.Symlink(agentapi.GuestBinary, link); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make the lease folder: %w", err)
	}
	return nil
}

// OpenBarrier opens the barrier of ref's epoch. Opening it twice is no error.
func (l Layout) OpenBarrier(ref agentapi.LeaseRef) error {
	b, err := json.Marshal(ref)
	if err != nil {
		return err
	}
	// Written by rename: the waiting init sees the whole file or none.
	tmp := filepath.Join(l.Node, "."+releaseName)
	if err := os.WriteFile(tmp, b, 0o644); err != nil {
		return fmt.Errorf("release the barrier: %w", err)
	}
	if err := os.Rename(tmp, filepath.Join(l.Node, releaseName)); err != nil {
		return fmt.Errorf("release the barrier: %w", err)
	}
	return nil
}

// BarrierOpen returns which epoch's barrier is open in a node folder; ok is false if none is.
func BarrierOpen(nodeDir string) (ref agentapi.LeaseRef, ok bool, err error) {
	b, err := os.ReadFile(filepath.Join(nodeDir, releaseName))
	if os.IsNotExist(err) {
		return ref, false, nil
	}
	if err != nil {
		return ref, false, err
	}
	if err := json.Unmarshal(b, &ref); err != nil {
		return ref, false, fmt.Errorf("the release file is not readable: %w", err)
	}
	return ref, true, nil
}

func (l Layout) dropStaleRelease(ref agentapi.LeaseRef) error {
	old, ok, err := BarrierOpen(l.Node)
	if err == nil && (!ok || old == ref) {
		return nil
	}
	if err := os.Remove(filepath.Join(l.Node, releaseName)); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove the former epoch's release: %w", err)
	}
	return nil
}

// ForgetStart removes the files of a guest and a workload that died before the barrier opened, so that their
// replacements start from the beginning.
func (l Layout) ForgetStart() error {
	for _, dir := range []string{l.Guest, l.Node} {
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("forget a start: %w", err)
		}
	}
	return nil
}

// NodeName returns a rank's host name inside the cluster.
func NodeName(rank int) string { return fmt.Sprintf("node-%d", rank) }

// Hosts returns /etc/hosts: every rank by name, complete before any of them has started.
func Hosts(spec agentapi.LeaseSpec) string {
	var b strings.Builder
	b.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	nodes := append([]agentapi.Peer{{Rank: spec.Rank, Address: spec.Network.Address}}, spec.Network.Peers...)
	slices.SortFunc(nodes, func(a, b agentapi.Peer) int { return cmp.Compare(a.Rank, b.Rank) })
	for _, n := range nodes {
		fmt.Fprintf(&b, "%s\t%s\n", n.Address, NodeName(n.Rank))
	}
	return b.String()
}

// Hostfile returns the MPI host file: every rank and its number of GPUs (at least one slot).
func Hostfile(spec agentapi.LeaseSpec) string {
	var b strings.Builder
	for rank := range spec.Nodes {
		fmt.Fprintf(&b, "%s slots=%d\n", NodeName(rank), max(1, len(spec.GPUs)))
	}
	return b.String()
}

// Accelerate returns a configuration for accelerate launch, which starts one process per GPU on this rank; without
// GPUs, one process. Its fields are those of accelerate.commands.config.config_args.ClusterConfig.
func Accelerate(spec agentapi.LeaseSpec) string {
	per := max(1, len(spec.GPUs))
	kind := "MULTI_GPU"
	switch {
	case spec.Nodes*per == 1:
		kind = "NO"
	case len(spec.GPUs) == 0:
		kind = "MULTI_CPU"
	}
	return fmt.Sprintf(`compute_environment: LOCAL_MACHINE
distributed_type: '%s'
machine_rank: %d
main_process_ip: %s
main_process_port: %d
main_training_function: main
mixed_precision: 'no'
num_machines: %d
num_processes: %d
rdzv_backend: static
same_network: true
use_cpu: %t
`, kind, spec.Rank, spec.Master(), agentapi.MasterPort, spec.Nodes, spec.Nodes*per, len(spec.GPUs) == 0)
}

// ResolvConf returns /etc/resolv.conf. It must not name Docker's own resolver: that times out behind the firewall and
// knows other tenants' names.
func ResolvConf(resolvers []netip.Addr) string {
	var b strings.Builder
	for _, r := range resolvers {
		fmt.Fprintf(&b, "nameserver %s\n", r)
	}
	b.WriteString("options timeout:2 attempts:2\n")
	return b.String()
}

// writeIfChanged writes in place, so that an existing file mount shows the new text too.
func writeIfChanged(path, text string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == text {
		return nil
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
