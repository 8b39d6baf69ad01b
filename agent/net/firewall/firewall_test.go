package firewall

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const host8 = "0badcafe"

var (
	one = netip.MustParseAddr("172.30.7.2")
	two = netip.MustParseAddr("172.30.7.3")
)

// namespace is a thread that stays in a network namespace of its own.
type namespace struct {
	file *os.File
	work chan func()
}

func newNamespace(t *testing.T) namespace {
	t.Helper()
	n := namespace{work: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the test
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open("/proc/thread-self/ns/net")
		}
		ready <- err
		for f := range n.work {
			f()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal("cannot make a network namespace (are the tests run as root?):", err)
	}
	t.Cleanup(func() { n.file.Close(); close(n.work) })
	n.ip(t, "link set lo up")
	return n
}

func (n namespace) do(f func()) {
	done := make(chan struct{})
	n.work <- func() { f(); close(done) }
	<-done
}

func (n namespace) run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	var out []byte
	var err error
	n.do(func() {
		cmd := exec.Command(name, args...)
		cmd.Stdin = strings.NewReader(stdin)
		cmd.ExtraFiles = nil
		out, err = cmd.CombinedOutput()
	})
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func (n namespace) ip(t *testing.T, lines ...string) {
	t.Helper()
	n.run(t, strings.Join(lines, "\n")+"\n", "ip", "-batch", "-")
}

// join makes a veth pair, one end here and one there.
func (n namespace) join(t *testing.T, name string, other namespace, there string) {
	t.Helper()
	n.ip(t, fmt.Sprintf("link add %s type veth peer name %s netns /proc/%d/fd/%d", name, there, os.Getpid(),
		other.file.Fd()),
		"link set "+name+" up")
	other.ip(t, "link set "+there+" up")
}

func (n namespace) serve(t *testing.T) {
	t.Helper()
	for _, port := range []string{"80", "25", "2375", "8080"} {
		n.do(func() {
			l, err := net.Listen("tcp4", "0.0.0.0:"+port)
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
					io.WriteString(c, "x")
					c.Close()
				}
			}()
		})
	}
}

// reaches reports whether an address answers. What must answer is waited for, however slow the machine is; what must
// not is given a moment.
func (n namespace) reaches(addr string, must bool) bool {
	limit := 400 * time.Millisecond
	if must {
		limit = time.Minute
	}
	c, err := n.dial(addr, limit)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// machine is a host with the agent's bridge, another agent's bridge, two containers and a network outside.
type machine struct {
	host, c1, c2, other, outside namespace
	keeper                       *Keeper
}

func newMachine(t *testing.T) machine {
	m := machine{newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t), &Keeper{}}
	bridge, foreign := Config{Host8: host8}.Bridge(), Config{Host8: "11112222"}.Bridge()
	m.host.do(func() { os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0) })
	m.host.ip(t,
		"link add "+bridge+" type bridge", "addr add 172.30.7.1/24 dev "+bridge, "link set "+bridge+" up",
		"link add "+foreign+" type bridge", "addr add 172.30.8.1/24 dev "+foreign, "link set "+foreign+" up")
	for i, c := range []struct {
		ns     namespace
		bridge string
		addr   string
		gw     string
	}{{m.c1, bridge, one.String(), "172.30.7.1"}, {m.c2, bridge, two.String(), "172.30.7.1"},
		{m.other, foreign, "172.30.8.2", "172.30.8.1"}} {
		port := fmt.Sprintf("port%d", i)
		m.host.join(t, port, c.ns, "eth0")
		m.host.ip(t, "link set "+port+" master "+c.bridge)
		c.ns.ip(t, "addr add "+c.addr+"/24 dev eth0", "route add default via "+c.gw)
	}
	m.host.join(t, "wan0", m.outside, "net0")
	m.host.ip(t, "addr add 203.0.113.1/24 dev wan0", "addr add 192.168.1.2/24 dev wan0",
		"route add default via 203.0.113.9")
	m.outside.ip(t, "addr add 203.0.113.9/24 dev net0", "addr add 192.168.1.10/24 dev net0",
		"route add 172.30.0.0/16 via 203.0.113.1")
	for _, a := range []string{"198.51.100.8", "169.254.169.254", "168.63.129.16", "100.100.100.200", "10.1.2.3"} {
		m.outside.ip(t, "addr add "+a+"/32 dev lo")
	}
	for _, n := range []namespace{m.host, m.c1, m.c2, m.other, m.outside} {
		n.serve(t)
	}
	return m
}

func (m machine) ensure(t *testing.T, leases map[netip.Addr]Egress) {
	t.Helper()
	var err error
	m.host.do(func() { err = m.keeper.Ensure(t.Context(), Config{Host8: host8, Leases: leases}) })
	if err != nil {
		t.Fatal(err)
	}
}

func (m machine) check(leases map[netip.Addr]Egress) (err error) {
	m.host.do(func() { err = check(context.Background(), Config{Host8: host8, Leases: leases}) })
	return err
}

// check reports what differs if the table is not exactly as cfg says, or if a port of the bridge reaches the others. It
// changes nothing.
func check(ctx context.Context, cfg Config) error {
	if err := (&Keeper{}).verify(ctx, cfg); err != nil {
		return err
	}
	return eachTogether(cfg.Bridge(), func(port netlink.Link) error {
		return fmt.Errorf("%s may reach the other ports of %s", port.Attrs().Name, cfg.Bridge())
	})
}

func TestWhatAContainerReaches(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	far := []string{"198.51.100.8:80", "198.51.100.8:8080", "198.51.100.8:25"}
	private := map[string]string{
		"the host by the bridge's gateway":   "172.30.7.1:2375",
		"the host by its public address":     "203.0.113.1:2375",
		"the host by its LAN address":        "192.168.1.2:80",
		"the host by another bridge":         "172.30.8.1:80",
		"the LAN":                            "192.168.1.10:80",
		"a neighbour on the public link":     "203.0.113.9:80",
		"metadata":                           "169.254.169.254:80",
		"Azure's metadata":                   "168.63.129.16:80",
		"Alibaba's metadata":                 "100.100.100.200:80",
		"a private network behind the route": "10.1.2.3:80",
		"another container":                  two.String() + ":80",
		"another agent's container":          "172.30.8.2:80",
	}
	// Without the firewall everything answers: what follows is the firewall's doing.
	for what, addr := range private {
		if !m.c1.reaches(addr, true) {
			t.Fatalf("the test's own network is wrong: %s (%s) does not answer", what, addr)
		}
	}
	for _, c := range []struct {
		egress Egress
		far    []bool // 80, 8080, 25
	}{{EgressFull, []bool{true, true, false}}, {EgressLimited, []bool{true, false, false}},
		{EgressOff, []bool{false, false, false}}, {"", []bool{false, false, false}}} {
		leases := map[netip.Addr]Egress{two: EgressFull}
		if c.egress != "" {
			leases[one] = c.egress
		}
		m.ensure(t, leases)
		var got []bool
		for i, a := range far {
			got = append(got, m.c1.reaches(a, c.far[i]))
		}
		if !cmp.Equal(got, c.far) {
			t.Errorf("egress %q: reaches 80, 8080, mail outside: %v, want %v", c.egress, got, c.far)
		}
		if c.egress == EgressOff || c.egress == "" {
			continue
		}
		for what, addr := range private {
			if m.c1.reaches(addr, false) {
				t.Errorf("egress %q: %s (%s) answers", c.egress, what, addr)
			}
		}
	}
	// No connection to a container opens from outside; the other agent's containers are not affected.
	for _, from := range []namespace{m.outside, m.other} {
		if from.reaches(two.String()+":80", false) {
			t.Error("a container was reached from outside its bridge")
		}
	}
	if !m.other.reaches("198.51.100.8:8080", true) || !m.other.reaches("172.30.8.1:2375", true) {
		t.Error("another agent's bridge is matched by this agent's rules")
	}
}

func TestEnsureKeepsAndCheckSees(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	leases := map[netip.Addr]Egress{one: EgressFull}
	if err := m.check(leases); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("before Ensure: %v", err)
	}
	m.ensure(t, leases)
	if err := m.check(leases); err != nil {
		t.Error("after Ensure:", err)
	}
	if !m.c1.reaches("198.51.100.8:80", true) || !m.c1.reaches("198.51.100.8:8080", true) {
		t.Error("the outside does not answer")
	}
	flows := func() map[netip.Addr]uint64 {
		out := map[netip.Addr]uint64{}
		for a, f := range m.flows(t) {
			out[a] = f.Opened
		}
		return out
	}
	if diff := cmp.Diff(map[netip.Addr]uint64{one: 2}, flows(),
		cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error("flows", diff)
	}
	// Another lease's coming does not lose the count; traffic does not make the table look changed.
	leases[two] = EgressLimited
	m.ensure(t, leases)
	if f := flows(); f[one] != 2 || len(f) != 2 {
		t.Errorf("after a second lease came: %v", f)
	}
	delete(leases, one)
	m.ensure(t, leases)
	if f := flows(); len(f) != 1 {
		t.Errorf("after the first lease left: %v", f)
	}
	tampering := map[string]string{
		"a rule before ours":    "insert rule inet muster_0badcafe input accept",
		"a rule removed":        "flush chain inet muster_0badcafe input",
		"an address let out":    "add element inet muster_0badcafe full4 { 172.30.7.9 }",
		"a lease shut in":       "delete element inet muster_0badcafe limited4 { 172.30.7.3 }",
		"a denied network gone": "delete element inet muster_0badcafe deny4 { 192.168.0.0/16 }",
		"a chain more": "add chain inet muster_0badcafe extra { type filter hook forward priority -300; policy " +
			"accept; }",
		"the table gone": "delete table inet muster_0badcafe",
	}
	for what, nft := range tampering {
		m.host.run(t, "", "nft", nft)
		if err := m.check(leases); err == nil {
			t.Errorf("%s: not seen", what)
		}
		m.ensure(t, leases)
		if err := m.check(leases); err != nil {
			t.Errorf("%s: not repaired: %v", what, err)
		}
	}
	// A cached listing of nft does not override the actual rules.
	for i, o := range m.keeper.means {
		if kind, b := body(o); kind == "chain" {
			changed := map[string]any{"policy": "as an older nft wrote it"}
			for k, v := range b {
				if k != "policy" {
					changed[k] = v
				}
			}
			m.keeper.means[i] = map[string]any{kind: changed}
		}
	}
	m.ensure(t, leases)
	if err := m.check(leases); err != nil {
		t.Errorf("after nft listed otherwise: %v", err)
	}
	// A network the host joins later is denied from the next Ensure on.
	m.host.ip(t, "addr add 192.0.2.2/24 dev wan0")
	if err := m.check(leases); err == nil {
		t.Error("a new public network of the host is not missed")
	}
	for range 2 {
		var err error
		m.host.do(func() { err = Remove(t.Context(), host8) })
		if err != nil {
			t.Error("Remove:", err)
		}
	}
	if out := m.host.run(t, "", "nft", "list", "ruleset"); out != "" {
		t.Errorf("left behind: %s", out)
	}
}

// Many new connections per second of one lease are cut off, and the other lease's are not.
func TestConnectionRate(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.ensure(t, map[netip.Addr]Egress{one: EgressLimited, two: EgressLimited})
	began := time.Now()
	var attempts []int
	m.c1.do(func() { // connection attempts without waiting for answers
		for range 400 {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return
			}
			attempts = append(attempts, fd)
			unix.Connect(fd, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{198, 51, 100, 8}})
		}
	})
	if !m.c2.reaches("198.51.100.8:80", true) {
		t.Error("the other lease is cut off too")
	}
	through := 0
	for _, fd := range attempts {
		if _, err := unix.Getpeername(fd); err == nil {
			through++
		}
	}
	allowed := 100 + int(20*time.Since(began).Seconds()) + 1 // however slow the machine is: the burst, and what came since
	if through == 0 || through > allowed {
		t.Errorf("of %d connections at once %d were let through, want at most %d and some", len(attempts), through, allowed)
	}
	for _, fd := range attempts {
		unix.Close(fd)
	}
}

func TestRefusesWhatIsNoConfig(t *testing.T) {
	t.Parallel()
	for _, cfg := range []Config{
		{Host8: "x"}, {Host8: "0BADCAFE"}, {Host8: "0badcaf\""},
		{Host8: host8, Leases: map[netip.Addr]Egress{one: "wide"}},
		{Host8: host8, Leases: map[netip.Addr]Egress{netip.MustParseAddr("::1"): EgressFull}},
	} {
		if err := check(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "validation") {
			t.Errorf("%v: %v", cfg, err)
		}
	}
}
