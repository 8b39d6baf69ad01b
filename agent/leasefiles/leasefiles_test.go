package leasefiles

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

func spec(epoch int) agentapi.LeaseSpec {
	return agentapi.LeaseSpec{
		LeaseRef: agentapi.LeaseRef{Lease: "lease_x", Epoch: epoch},
		Rank:     1,
		Nodes:    3,
		GPUs:     []string{"a", "b"},
		Network: agentapi.Network{
			Address: "10.77.0.2",
			Peers:   []agentapi.Peer{{Rank: 2, Address: "10.77.0.3"}, {Rank: 0, Address: "10.77.0.1"}},
		},
	}
}

func TestFiles(t *testing.T) {
	t.Parallel()
	l := At(filepath.Join(t.TempDir(), "lease"))
	resolvers := []netip.Addr{netip.MustParseAddr("1.1.1.1"), netip.MustParseAddr("9.9.9.9")}
	if err := l.Write(spec(1), resolvers); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		l.Hosts: "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost " +
			"ip6-loopback\n10.77.0.1\tnode-0\n10.77.0.2\tnode-1\n10.77.0.3\tnode-2\n",
		l.ResolvConf: "nameserver 1.1.1.1\nnameserver 9.9.9.9\noptions timeout:2 attempts:2\n",
		l.Hostname:   "node-1\n",
		l.Hostfile(): "node-0 slots=2\nnode-1 slots=2\nnode-2 slots=2\n",
		filepath.Join(l.Node, accelerateName): "compute_environment: LOCAL_MACHINE\ndistributed_type: 'MULTI_GPU'\n" +
			"machine_rank: 1\nmain_process_ip: 10.77.0.1\nmain_process_port: 29500\nmain_training_function: main\n" +
			"mixed_precision: 'no'\nnum_machines: 3\nnum_processes: 6\nrdzv_backend: static\nsame_network: true\n" +
			"use_cpu: false\n",
	} {
		got, err := os.ReadFile(path)
		if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", path, err, diff)
		}
	}
	if to, err := os.Readlink(filepath.Join(l.Node, sshName)); to != agentapi.GuestBinary {
		t.Errorf("ssh is a link to %s: %v", to, err)
	}
	for path, want := range map[string]os.FileMode{l.Dir: 0o700, l.Overlay: 0o700, l.Guest: 0o700, l.Node: 0o755} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, st.Mode(), err)
		}
	}
}

// A file that is mounted keeps its inode, so that the container sees what is written later.
func TestWritingAgainKeepsInodes(t *testing.T) {
	t.Parallel()
	l := At(t.TempDir())
	inode := func() uint64 {
		var st unix.Stat_t
		if err := unix.Stat(l.Hosts, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	if err := l.Write(spec(1), nil); err != nil {
		t.Fatal(err)
	}
	before := inode()
	if err := l.OpenBarrier(agentapi.LeaseRef{Lease: "lease_x", Epoch: 1}); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(spec(2), []netip.Addr{netip.MustParseAddr("9.9.9.9")}); err != nil {
		t.Fatal(err)
	}
	if inode() != before {
		t.Error("the hosts file was replaced")
	}
	if ref, ok, err := BarrierOpen(l.Node); ok || err != nil {
		t.Errorf("the barrier of %s is open in epoch 2: %v", ref, err)
	}
}
