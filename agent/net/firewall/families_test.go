package firewall

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// arrivals are the datagrams that have come anywhere in a test's network, by what they say.
type arrivals struct {
	mu  sync.Mutex
	has map[string]bool
}

func (a *arrivals) got(what string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.has[what]
}

// listen notes what comes to a namespace's UDP ports, over both families, and answers TCP's port 80 over IPv6.
func (a *arrivals) listen(t *testing.T, n namespace) {
	t.Helper()
	n.do(func() {
		for _, port := range []int{53, 5353, 4791} {
			c, err := net.ListenUDP("udp", &net.UDPAddr{Port: port})
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				for b := make([]byte, 200); ; {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					a.mu.Lock()
					a.has[string(b[:n])] = true
					a.mu.Unlock()
				}
			}()
		}
		l, err := net.Listen("tcp6", "[::]:80")
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				c.Close()
			}
		}()
	})
}

// send sends one datagram; that the kernel refuses it at once is as well as that it is lost.
func (n namespace) send(t *testing.T, addr, what string) {
	t.Helper()
	n.do(func() {
		c, err := net.Dial("udp", addr)
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte(what))
	})
}

// arrives sends until a datagram has come.
func (a *arrivals) arrives(t *testing.T, n namespace, addr, what string) bool {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		n.send(t, addr, what)
		if a.got(what) {
			return true
		}
	}
	return false
}

// dual gives a machine IPv6 everywhere, routed as IPv4 is.
func (m machine) dual(t *testing.T) {
	t.Helper()
	bridge := Config{Host8: host8}.Bridge()
	m.host.do(func() { _ = os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0) })
	m.host.ip(t, "addr add fd00:7::1/64 dev "+bridge+" nodad", "addr add fd00:1::2/64 dev wan0 nodad",
		"addr add 2001:db8:1::1/64 dev wan0 nodad",
		"route add default via fd00:1::10", "addr add fe80::7:1/64 dev "+bridge+" nodad")
	m.c1.ip(t, "addr add fd00:7::2/64 dev eth0 nodad", "addr add fe80::7:2/64 dev eth0 nodad",
		"route add default via fd00:7::1")
	m.c2.ip(t, "addr add fd00:7::3/64 dev eth0 nodad", "route add default via fd00:7::1")
	m.outside.ip(t, "addr add fd00:1::10/64 dev net0 nodad", "addr add 2001:db8:1::9/64 dev net0 nodad",
		"route add fd00:7::/64 via fd00:1::2",
		"addr add 2001:db8:9::8/128 dev lo nodad", "addr add fd00:ec2::254/128 dev lo nodad")
}

// Addresses that containers must not reach get nothing over IPv6 either, which leases do not have at all, nor by UDP,
// which needs no answer to do harm.
func TestNothingArrivesByOtherWays(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.dual(t)
	a := &arrivals{has: map[string]bool{}}
	for _, n := range []namespace{m.host, m.c1, m.c2, m.other, m.outside} {
		a.listen(t, n)
	}
	// By number: Go remembers names of ports across namespaces.
	zone, _, _ := strings.Cut(m.c1.run(t, "", "ip", "-o", "link", "show", "eth0"), ":")
	six := map[string]string{
		"the host by the bridge's gateway":   "[fd00:7::1]",
		"the host by its link-local address": "[fe80::7:1%" + zone + "]",
		"the host by its LAN address":        "[fd00:1::2]",
		"the host by its public address":     "[2001:db8:1::1]",
		"the LAN":                            "[fd00:1::10]",
		"a neighbour on the public link":     "[2001:db8:1::9]",
		"metadata":                           "[fd00:ec2::254]",
		"another container":                  "[fd00:7::3]",
		"the internet":                       "[2001:db8:9::8]",
	}
	four := map[string]string{
		"the host by the bridge's gateway":   "172.30.7.1",
		"the host by its public address":     "203.0.113.1",
		"the host by its LAN address":        "192.168.1.2",
		"the host by another bridge":         "172.30.8.1",
		"the LAN":                            "192.168.1.10",
		"a neighbour on the public link":     "203.0.113.9",
		"metadata":                           "169.254.169.254",
		"Azure's metadata":                   "168.63.129.16",
		"Alibaba's metadata":                 "100.100.100.200",
		"a private network behind the route": "10.1.2.3",
		"another container":                  two.String(),
		"another agent's container":          "172.30.8.2",
	}
	ways := func(f func(what, addr string)) {
		for what, addr := range six {
			f("IPv6, "+what, addr)
		}
		for what, addr := range four {
			f("IPv4, "+what, addr)
		}
	}
	// Without the firewall everything arrives: what follows is the firewall's doing.
	ways(func(what, addr string) {
		if !a.arrives(t, m.c1, addr+":53", "before: "+what) {
			t.Fatalf("the test's own network is wrong: a datagram to %s (%s) does not arrive", what, addr)
		}
	})
	for what, addr := range six {
		if !m.c1.reaches(addr+":80", true) {
			t.Fatalf("the test's own network is wrong: %s (%s) does not answer", what, addr)
		}
	}
	const roce = "198.51.100.8:4791" // forged RDMA packets would go there
	if !a.arrives(t, m.c1, roce, "before: RoCE") {
		t.Fatal("the test's own network is wrong: a datagram to the port of RoCE does not arrive")
	}
	for _, egress := range []Egress{EgressFull, EgressLimited, EgressOff} {
		m.ensure(t, map[netip.Addr]Egress{one: egress, two: EgressFull})
		ways(func(what, addr string) {
			for _, port := range []string{":53", ":5353"} {
				m.c1.send(t, addr+port, string(egress)+": "+what+port)
			}
		})
		for what, addr := range six {
			if m.c1.reaches(addr+":80", false) {
				t.Errorf("egress %s: %s (%s) answers over IPv6", egress, what, addr)
			}
		}
		m.c1.send(t, roce, string(egress)+": RoCE")
		// What is sent after all that, and allowed, has arrived: so would they have.
		if egress != EgressOff && !a.arrives(t, m.c1, "198.51.100.8:53", string(egress)+": allowed") {
			t.Errorf("egress %s: no datagram gets out", egress)
		}
		m.c1.send(t, "198.51.100.8:5353", string(egress)+": other port")
		if egress == EgressFull && !a.arrives(t, m.c1, "198.51.100.8:5353", "full: other port") {
			t.Error("full egress: a datagram to another port is held")
		}
		ways(func(what, _ string) {
			for _, port := range []string{":53", ":5353"} {
				if a.got(string(egress) + ": " + what + port) {
					t.Errorf("egress %s: a datagram arrives at %s%s", egress, what, port)
				}
			}
		})
		if a.got(string(egress) + ": RoCE") {
			t.Errorf("egress %s: a datagram to the port of RoCE gets out", egress)
		}
		if egress != EgressFull && a.got(string(egress)+": other port") {
			t.Errorf("egress %s: a datagram to another port gets out", egress)
		}
	}
	// Nor does unsolicited IPv6 traffic come in.
	m.outside.send(t, "[fd00:7::2]:53", "from outside")
	if m.outside.reaches("[fd00:7::2]:80", false) || a.got("from outside") {
		t.Error("a container was reached from outside over IPv6")
	}
}
