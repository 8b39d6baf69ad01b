package firewall

import (
	"net/netip"
	"os"
	"strings"
	"testing"
)

// Containers on the bridge do not meet there, whatever becomes of bridged frames on this machine: not by IP, not by
// ARP.
func TestContainersOfOneBridgeDoNotSeeEachOther(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	leases := map[netip.Addr]Egress{one: EgressFull, two: EgressFull}
	m.host.do(func() { // the host's admin has switched it off; where the file is missing, it is off
		_ = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("0"), 0)
	})
	sees := func(must bool) bool {
		m.c1.ip(t, "neigh flush all")
		answers := m.c1.reaches(two.String()+":80", must)
		return answers || strings.Contains(m.c1.run(t, "", "ip", "neigh", "show", two.String()), "lladdr")
	}
	if !sees(true) {
		t.Fatal("the test's own network is wrong: they do not meet without the firewall")
	}
	m.ensure(t, leases)
	if sees(false) {
		t.Error("one container sees the other")
	}
	m.ensure(t, leases) // which finds nothing to do
	for port, change := range map[string]string{
		"a port that was let loose": "link set port1 type bridge_slave isolated off",
		"another port":              "link set port2 master mst" + host8,
	} {
		m.host.ip(t, change)
		if err := m.check(leases); err == nil {
			t.Errorf("%s: not seen", port)
		}
		m.ensure(t, leases)
		if err := m.check(leases); err != nil {
			t.Errorf("%s: not repaired: %v", port, err)
		}
	}
	if sees(false) {
		t.Error("one container sees the other after that")
	}
	if !m.c1.reaches("198.51.100.8:8080", true) {
		t.Error("a container does not reach the internet")
	}
}
