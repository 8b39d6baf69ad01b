package firewall

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func (m machine) flows(t *testing.T) (f map[netip.Addr]Traffic) {
	t.Helper()
	var err error
	m.host.do(func() { f, err = Flows(t.Context(), host8) })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (m machine) ensureCaps(t *testing.T, caps Caps, leases map[netip.Addr]Egress) {
	t.Helper()
	var err error
	m.host.do(func() { err = m.keeper.Ensure(t.Context(), Config{Host8: host8, Leases: leases, Caps: caps}) })
	if err != nil {
		t.Fatal(err)
	}
}

// listen serves each connection to a port of the namespace with f.
func (n namespace) listen(t *testing.T, port string, f func(net.Conn)) {
	t.Helper()
	var l net.Listener
	var err error
	n.do(func() { l, err = net.Listen("tcp4", "0.0.0.0:"+port) })
	if err != nil {
		t.Fatal(err)
	}
	var open sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		l.Close()
		open.Lock()
		defer open.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			open.Lock()
			conns = append(conns, c)
			open.Unlock()
			go f(c)
		}
	}()
}

// dial opens a connection from inside the namespace; it may be used from anywhere.
func (n namespace) dial(addr string, limit time.Duration) (c net.Conn, err error) {
	n.do(func() { c, err = net.DialTimeout("tcp", addr, limit) })
	return c, err
}

// A lease has a limit of connections open at once. The limit does not affect other leases, and a closed connection
// makes room for another.
func TestConnectionsOpenAtOnce(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	// holds until the other end closes
	m.outside.listen(t, "443", func(c net.Conn) { defer c.Close(); _, _ = io.Copy(io.Discard, c) })
	const most = 30
	for _, egress := range []Egress{EgressFull, EgressLimited} {
		m.ensureCaps(t, Caps{Connections: most}, map[netip.Addr]Egress{one: egress, two: egress})
		var open []net.Conn
		for range most {
			c, err := m.c1.dial("198.51.100.8:443", time.Minute)
			if err != nil {
				t.Fatalf("egress %s: connection %d: %v", egress, len(open)+1, err)
			}
			open = append(open, c)
		}
		if c, err := m.c1.dial("198.51.100.8:443", time.Minute); err == nil {
			c.Close()
			t.Errorf("egress %s: %d connections at once", egress, most+1)
		} else if !errors.Is(err, unix.EHOSTUNREACH) && !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EACCES) {
			t.Errorf("egress %s: one too many is not refused at once: %v", egress, err)
		}
		if c, err := m.c2.dial("198.51.100.8:443", time.Minute); err != nil {
			t.Errorf("egress %s: the other lease is cut off too: %v", egress, err)
		} else {
			c.Close()
		}
		for _, c := range open {
			c.Close()
		}
		for deadline := time.Now().Add(time.Minute); ; {
			c, err := m.c1.dial("198.51.100.8:443", time.Second)
			if err == nil {
				c.Close()
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("egress %s: closed connections count on: %v", egress, err)
			}
		}
		m.ensureCaps(t, Caps{Connections: most}, nil)
	}
}

// A transfer of a lease takes as long as the lease's bound implies, in each direction, whichever side drops packets. A
// slow machine can only make it longer.
func TestBandwidthOfALease(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const size = 6_000_000
	m.outside.listen(t, "443", func(c net.Conn) { // takes six megabytes, and sends as much back
		defer c.Close()
		if n, _ := io.CopyN(io.Discard, c, size); n == size {
			_, _ = c.Write(make([]byte, size))
		}
	})
	move := func() (up, down time.Duration) {
		t.Helper()
		c, err := m.c1.dial("198.51.100.8:443", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		began := time.Now()
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		var first [1]byte
		if _, err := io.ReadFull(c, first[:]); err != nil {
			t.Fatal(err)
		}
		up, began = time.Since(began), time.Now()
		if _, err := io.CopyN(io.Discard, c, size-1); err != nil {
			t.Fatal(err)
		}
		return up, time.Since(began)
	}
	const mbps = LimitedUpMbps // of which a second's worth may come at once
	least := time.Duration((size/(mbps*125_000.) - 1.2) * float64(time.Second))
	for _, tc := range []struct {
		caps     Caps
		egress   Egress
		up, down time.Duration
	}{
		{Caps{UpMbps: mbps, DownMbps: MaxMbps}, EgressFull, least, 0},
		{Caps{DownMbps: mbps}, EgressFull, 0, least},
		{Caps{UpMbps: MaxMbps, DownMbps: mbps}, EgressLimited, least, least}, // the lower of the operator's and limited's own
	} {
		m.ensureCaps(t, tc.caps, map[netip.Addr]Egress{one: tc.egress})
		up, down := move()
		if up < tc.up || down < tc.down {
			t.Errorf("%+v, egress %s: 6 MB went up in %v and came down in %v, want at least %v and %v", tc.caps, tc.egress, up,
				down, tc.up, tc.down)
		}
		m.ensureCaps(t, tc.caps, nil)
	}
}

// A lease's traffic is counted: connections opened, bytes moved, and attempts to reach denied addresses. The counts
// survive changes of other leases.
func TestTrafficIsCounted(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	m.ensure(t, map[netip.Addr]Egress{one: EgressFull})
	if !m.c1.reaches("198.51.100.8:80", true) {
		t.Error("the outside does not answer")
	}
	for _, a := range []string{"192.168.1.10:80", "169.254.169.254:80", "198.51.100.8:25"} {
		if m.c1.reaches(a, false) {
			t.Errorf("%s answers", a)
		}
	}
	m.ensure(t, map[netip.Addr]Egress{one: EgressFull, two: EgressOff})
	if m.c2.reaches("198.51.100.8:80", false) {
		t.Error("egress off reaches the outside")
	}
	f := m.flows(t)
	if got := f[one]; got.Opened != 1 || got.Refused < 3 || got.Up == 0 || got.Down == 0 {
		t.Errorf("of the first lease: %+v", got)
	}
	if got := f[two]; got.Opened != 0 || got.Refused == 0 || got.Up != 0 {
		t.Errorf("of the second lease: %+v", got)
	}
	uncapped, err := m.keeper.Uncapped(t.Context())
	if err != nil || uncapped != "" {
		t.Errorf("this kernel does not hold every bound: %q, %v", uncapped, err)
	}
	// A kernel that cannot count connections gets the rest.
	poor := &Keeper{probed: true, uncounted: true}
	m.host.do(func() {
		err = poor.Ensure(t.Context(), Config{Host8: host8, Leases: map[netip.Addr]Egress{one: EgressFull}})
	})
	if said, _ := poor.Uncapped(t.Context()); err != nil || said == "" {
		t.Errorf("without connections: %v, %q", err, said)
	}
	if !m.c1.reaches("198.51.100.8:80", true) || m.c1.reaches("192.168.1.10:80", false) {
		t.Error("without connections the rest does not hold")
	}
}
