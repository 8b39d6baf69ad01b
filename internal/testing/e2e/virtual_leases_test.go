//go:build machine

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// pids are the first processes of the host's running containers of a role, guest or work, as the machine numbers them.
func (v *virtual) pids(role string) []string {
	out, _ := v.Try("docker ps -q --filter label=muster.role=" + role +
		" | xargs -r docker inspect --format '{{.State.Pid}}'")
	return strings.Fields(out)
}

// left is what the machine has of leases.
func (v *virtual) left() string {
	out, err := v.Try("docker ps -aq --filter label=muster.host; pgrep -af 'muster-agent [o]verlay' || true; " +
		"systemd-inhibit --list --no-legend | grep muster-agent || true")
	if err != nil {
		return err.Error() + out
	}
	return out
}

func (m *machines) idleAgain(t *testing.T) {
	t.Helper()
	until(t, "nothing of any lease is left on "+m.a.Name, func() error {
		if left := m.a.left(); left != "" {
			return fmt.Errorf("%s", left)
		}
		return nil
	})
}

// here runs a cluster of one node on the machine.
func (m *machines) here(t *testing.T, r *renter, s client.Spec) client.Cluster {
	t.Helper()
	c := r.run(t, s)
	if c.Nodes[0].HostID != m.a.id {
		t.Fatalf("the node is not on %s: %+v", m.a.Name, c.Nodes[0])
	}
	return c
}

// runs has a training of one node, to its end.
func (m *machines) runs(t *testing.T) {
	r := m.renter(t, 50*money.Unit)
	c := r.rent(t, m.job(1, time.Second))
	u := r.trained(t, c)
	r.billed(t, c, u)
	r.owes(t, u)
	m.idleAgain(t)
}

// carries has a cluster over two machines: once they have proven that they reach each other, both ends of the overlay
// are the kernel's WireGuard. While it is leased a machine may not sleep.
func (m *machines) carries(t *testing.T) {
	beside := m.boot(t, "machine-b", "203.0.113.61/24", 0)
	beside.install(t)
	beside.sells(t)
	r := m.renter(t, 50*money.Unit)
	c := r.run(t, untilEnough(m.spec(2, 1, "train")))
	guests := m.a.pids("guest")
	if len(guests) != 1 {
		t.Fatalf("guests on %s: %q", m.a.Name, guests)
	}
	inside := "nsenter -t " + guests[0] + " -n "
	eventually(t, "the overlay is the kernel's", func() bool {
		return strings.Contains(m.a.Do(inside+"ip -details link show ovl0"), "wireguard")
	})
	eventually(t, "packets fill Ethernet's frames", func() bool {
		return strings.Contains(m.a.Do(inside+"ip -4 route show dev ovl0"), "mtu 1440")
	})
	received := func() (rx int64) {
		f := strings.Fields(m.a.Do(inside + "wg show ovl0 transfer"))
		if len(f) != 3 {
			t.Fatalf("one peer is wanted: %q", f)
		}
		rx, _ = strconv.ParseInt(f[1], 10, 64)
		return rx
	}
	r.awaitLine(t, c, 0, "step ")
	r.awaitLine(t, c, 1, "step ")
	before := received()
	eventually(t, "the kernel's WireGuard carries what the ranks say", func() bool { return received() > before+100_000 })
	t.Log(m.a.Do(inside + "wg show ovl0; " + inside + "ip -stats link show ovl0"))
	if held := m.a.Do("systemd-inhibit --list --no-legend"); !strings.Contains(held, "muster-agent") ||
		!strings.Contains(held, "sleep") {
		t.Errorf("the machine may go to sleep:\n%s", held)
	}
	// Another agent finds the kernel's device, and goes on with it; so does a new process of the overlay's.
	for _, victim := range []string{"muster-agent run", "muster-agent overlay"} {
		m.a.Do("pkill -9 -f '^[^ ]*" + victim + "'")
		at := received()
		eventually(t, "the ranks speak after a kill of "+victim, func() bool { return received() > at+100_000 })
	}
	r.enough(t, c)
	u := r.trained(t, c)
	r.owes(t, u)
	m.idleAgain(t)
	// What follows is to be on the machine.
	if _, err := m.Operator.Hosts.Act(t.Context(), beside.id, client.ActOnHostRequest{Action: "drain"}); err != nil {
		t.Fatal(err)
	}
}

// near has a lease on each of the machine's GPUs: each gets the processors of its GPU's NUMA node.
func (m *machines) near(t *testing.T) {
	r := m.renter(t, 50*money.Unit)
	seen := map[string]bool{}
	var clusters []client.Cluster
	for range 2 {
		clusters = append(clusters, m.here(t, r, m.spec(1, 1, "sleep", "86400")))
	}
	for _, pid := range m.a.pids("work") {
		status := m.a.Do("grep -E '^(Cpus|Mems)_allowed_list' /proc/" + pid +
			"/status; cat /sys/fs/cgroup$(cut -d: -f3 /proc/" + pid + "/cgroup)/cpuset.{cpus,mems}")
		t.Log(status)
		seen[strings.Join(strings.Fields(status), " ")] = true
	}
	for node := range 2 {
		want := fmt.Sprintf("Cpus_allowed_list: %d Mems_allowed_list: %d %d %d", node, node, node, node)
		if !seen[want] {
			t.Errorf("no lease has the processors and memory of node %d: %v", node, seen)
		}
	}
	for _, c := range clusters {
		if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		r.settle(t, c)
	}
	m.idleAgain(t)
}

// fills has a node write until it may not: Docker's overlay2 on XFS holds it by a project quota.
func (m *machines) fills(t *testing.T) {
	r := m.renter(t, 50*money.Unit)
	s := m.spec(1, 1, "sleep", "86400")
	s.DiskLimited = true
	c := m.here(t, r, s)
	conn, err := r.Clusters.SSH(t.Context(), c.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := session.CombinedOutput("cat /dev/zero > /fill")
	t.Logf("%s %v", out, err)
	upper := m.a.Do("du -sb $(docker ps -q --filter label=muster.role=work | xargs docker inspect --format " +
		"'{{.GraphDriver.Data.UpperDir}}') | cut -f1")
	size, _ := strconv.ParseInt(strings.TrimSpace(upper), 10, 64)
	if err == nil || size < 900_000_000 || size > 1_100_000_000 {
		t.Errorf("a node that may write 1 GB has written %d bytes: %s (%v)", size, out, err)
	}
	if free := m.a.Do("touch /var/lib/docker/here && rm /var/lib/docker/here && df -h /var/lib/docker"); free != "" {
		t.Log(free)
	}
	if _, err := r.Clusters.Release(t.Context(), c.ID); err != nil {
		t.Fatal(err)
	}
	r.settle(t, c)
	m.idleAgain(t)
}
