package testnet

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "doomed" {
		doomed()
	}
	os.Exit(m.Run())
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never:", what)
		}
	}
}

// echo answers each datagram with the address that it came from.
func echo(c net.PacketConn) {
	buf := make([]byte, 2048)
	for {
		_, from, err := c.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = c.WriteTo([]byte(from.String()), from)
	}
}

// seenAs asks an echo server, until it answers, from which address it sees c.
func seenAs(t *testing.T, c net.PacketConn, server string) string {
	t.Helper()
	to, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		_, _ = c.WriteTo([]byte("?"), to)
		_ = c.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if n, from, err := c.ReadFrom(buf); err == nil && from.String() == server {
			return string(buf[:n])
		}
	}
	t.Fatal("no answer from", server)
	return ""
}

// Routers translate as home routers do: one keeps the port for every destination, the other uses a new one for each,
// and neither accepts what was not requested.
func TestRoutersTranslate(t *testing.T) {
	t.Parallel()
	n := New(t)
	internet := n.Segment()
	var servers []string
	for i := range 2 {
		h := n.Host(fmt.Sprintf("server%d", i))
		ip := fmt.Sprintf("203.0.113.%d", 10+i)
		h.Join(internet, ip+"/24")
		go echo(h.ListenPacket(ip + ":7"))
		servers = append(servers, ip+":7")
	}
	for i, kind := range []NAT{Preserving, Symmetric} {
		lan := n.Segment()
		public := fmt.Sprintf("203.0.113.%d", 20+i)
		n.Router(fmt.Sprintf("router%d", i), lan, "192.168.1.1/24", internet, public+"/24", kind)
		h := n.Host(fmt.Sprintf("home%d", i))
		h.Join(lan, "192.168.1.10/24")
		h.Route("default", "192.168.1.1")
		c := h.ListenPacket("192.168.1.10:4567")
		a, b := seenAs(t, c, servers[0]), seenAs(t, c, servers[1])
		if got := a == b; got != (kind == Preserving) || !strings.HasPrefix(a, public+":") {
			t.Errorf("%s: seen as %s and as %s", kind, a, b)
		}
		if kind == Preserving && a != public+":4567" {
			t.Errorf("the port was not kept: %s", a)
		}
		outsider := n.Host(fmt.Sprintf("outsider%d", i))
		outsider.Join(internet, fmt.Sprintf("203.0.113.%d/24", 30+i))
		l := h.Listen("0.0.0.0:80")
		go l.Accept()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		if conn, err := outsider.Dial(ctx, "tcp", public+":80"); err == nil {
			conn.Close()
			t.Errorf("%s: the router let a stranger in", kind)
		}
		cancel()
	}
}

// A link can be cut and restored, delays frames and loses them; both address families pass it.
func TestLinksFail(t *testing.T) {
	t.Parallel()
	n := New(t)
	s := n.Segment()
	a, b := n.Host("a"), n.Host("b")
	link := a.Join(s, "10.1.0.1/24", "fd01::1/64")
	b.Join(s, "10.1.0.2/24", "fd01::2/64")
	go echo(b.ListenPacket("[fd01::2]:7"))
	go echo(b.ListenPacket("10.1.0.2:7"))
	c := a.ListenPacket(":0")
	seenAs(t, c, "[fd01::2]:7")
	seenAs(t, c, "10.1.0.2:7")

	link.Set(Fault{Cut: true})
	to, _ := net.ResolveUDPAddr("udp", "10.1.0.2:7")
	before := link.Lost()
	_, _ = c.WriteTo([]byte("?"), to)
	eventually(t, "the cut link swallows", func() bool { return link.Lost() > before })
	link.Set(Fault{})
	seenAs(t, c, "10.1.0.2:7")

	const late = 50 * time.Millisecond
	link.Set(Fault{Delay: late})
	seenAs(t, c, "10.1.0.2:7") // answers to earlier requests arrive here, too
	fresh := a.ListenPacket(":0")
	sent := time.Now()
	_, _ = fresh.WriteTo([]byte("?"), to)
	_ = fresh.SetReadDeadline(time.Now().Add(patience))
	if _, _, err := fresh.ReadFrom(make([]byte, 64)); err != nil || time.Since(sent) < 2*late {
		t.Errorf("a question and its answer took %v, %v", time.Since(sent), err)
	}

	link.Set(Fault{Loss: 0.5})
	before = link.Lost()
	eventually(t, "the bad link loses", func() bool { _, _ = c.WriteTo([]byte("?"), to); return link.Lost() > before })
	seenAs(t, c, "10.1.0.2:7")
}

// Nothing leads out of a net, and what runs in it sees only its own processes.
func TestNoWayOut(t *testing.T) {
	t.Parallel()
	n := New(t)
	h := n.Host("alone")
	h.Join(n.Segment(), "192.0.2.50/24")
	if routes := h.Run("ip", "route"); strings.Contains(routes, "default") {
		t.Errorf("routes: %s", routes)
	}
	if _, err := h.Dial(t.Context(), "tcp", "198.51.100.1:80"); err == nil ||
		!strings.Contains(err.Error(), "unreachable") {
		t.Errorf("dialling out: %v", err)
	}
	if ps := strings.Fields(h.Run("sh", "-c", "echo /proc/[0-9]*")); len(ps) > 4 {
		t.Errorf("it sees %d processes", len(ps))
	}
	outside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer outside.Close()
	go func() {
		if c, err := outside.Accept(); err == nil {
			io.WriteString(c, "from the test")
			c.Close()
		}
	}()
	h.Publish("192.0.2.50:8080", outside.Addr().String())
	c, err := h.Dial(t.Context(), "tcp", "192.0.2.50:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); string(got) != "from the test" {
		t.Errorf("published: %q, %v", got, err)
	}
}

// doomed is a test process that creates a net, prints what it created, and waits to be killed.
func doomed() {
	t := &fatal{}
	n := New(t)
	h := n.Host("doomed")
	h.Join(n.Segment(), "10.0.0.1/24")
	cmd := h.Command(context.Background(), "setsid", "sleep", "86400")
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	for len(h.Processes("sleep 86400")) == 0 {
		time.Sleep(5 * time.Millisecond)
	}
	fmt.Println(n.Dir(), h.Processes("sleep 86400")[0])
	select {}
}

type fatal struct{ testing.TB }

func (*fatal) Helper()           {}
func (*fatal) Cleanup(func())    {}
func (*fatal) Fatal(args ...any) { panic(fmt.Sprint(args...)) }
func (*fatal) Fatalf(f string, args ...any) {
	panic(fmt.Sprintf(f, args...))
}

// A killed test leaves no process, and its folder is removed with the next net.
func TestKilledTestLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/proc/self/exe", "doomed")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	var pid int
	if _, err := fmt.Fscan(out, &dir, &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatal("the process in the net does not run:", err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	eventually(t, "the processes of the net end", func() bool { return syscall.Kill(pid, 0) != nil })
	New(t)
	if _, err := os.Stat(filepath.Join(dir, "lock")); !os.IsNotExist(err) {
		t.Errorf("the killed test's folder is still there: %v", err)
	}
}

// Two hosts have separate engines; one that is killed leaves its containers running.
func TestEngines(t *testing.T) {
	t.Parallel()
	n := New(t)
	s := n.Segment()
	program := filepath.Join(n.Dir(), "still")
	build := exec.Command("go", "build", "-o", program, "./testdata/still")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	image := filepath.Join(n.Dir(), "image.tar")
	if out, err := exec.Command("tar", "-C", n.Dir(), "-cf", image, "still").CombinedOutput(); err != nil {
		t.Fatalf("pack: %v\n%s", err, out)
	}
	for i := range 2 {
		h := n.Host(fmt.Sprintf("host%d", i))
		h.Join(s, fmt.Sprintf("10.9.0.%d/24", i+1))
		d := h.Docker()
		d.Do("import", image, "still")
		id := d.Do("run", "-d", "--name", "one", "still", "/still")
		if got := d.Do("ps", "-q", "--no-trunc"); got != id {
			t.Errorf("%s runs %s, not only %s", h.Name, got, id)
		}
		if i == 1 {
			continue
		}
		d.Kill()
		d.Start()
		if got := d.Do("ps", "-q", "--no-trunc"); got != id {
			t.Errorf("after the engine's kill it runs %s, not %s", got, id)
		}
	}
}
