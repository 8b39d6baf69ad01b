package firewall

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain is also the process of a mount: it waits for its input, as muster-mount does, and then sends and receives so
// many bytes.
func TestMain(m *testing.M) {
	if addr := os.Getenv("MUSTER_TEST_MOUNT"); addr != "" {
		size, err := strconv.ParseInt(os.Getenv("MUSTER_TEST_SIZE"), 10, 64)
		if err == nil {
			_, _ = io.ReadAll(os.Stdin)
			err = exchange(func() (net.Conn, error) { return net.DialTimeout("tcp", addr, time.Minute) }, size)
		}
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// exchange sends size bytes and receives as many, and shows how long each took.
func exchange(dial func() (net.Conn, error), size int64) error {
	c, err := dial()
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Minute))
	began := time.Now()
	if _, err := c.Write(make([]byte, size)); err != nil {
		return err
	}
	var first [1]byte
	if _, err := io.ReadFull(c, first[:]); err != nil {
		return err
	}
	fmt.Printf("up=%d\n", time.Since(began).Milliseconds())
	began = time.Now()
	_, err = io.CopyN(io.Discard, c, size-1)
	fmt.Printf("down=%d\n", time.Since(began).Milliseconds())
	return err
}

// echo serves a port of the namespace: it takes size bytes, and sends as many back.
func (n namespace) echo(t *testing.T, port string, size int64) {
	t.Helper()
	n.listen(t, port, func(c net.Conn) {
		defer c.Close()
		if n, _ := io.CopyN(io.Discard, c, size); n == size {
			_, _ = c.Write(make([]byte, size))
		}
	})
}

// mount is a process of a run's mounts.
type mount struct {
	cmd *exec.Cmd
	in  io.Closer
	out *strings.Builder
}

// startMount starts the process of a mount on the host, and confines it unless run is "".
func (m machine) startMount(t *testing.T, run, addr string, size int64) mount {
	t.Helper()
	p := mount{cmd: exec.Command("/proc/self/exe"), out: &strings.Builder{}}
	p.cmd.Env = append(os.Environ(), "MUSTER_TEST_MOUNT="+addr, fmt.Sprintf("MUSTER_TEST_SIZE=%d", size))
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	m.host.do(func() { err = p.cmd.Start() })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	if run != "" {
		if err := Confine(host8, run, p.cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// wait lets the process exchange its bytes, and returns how long each direction took.
func (p mount) wait(t *testing.T) (up, down time.Duration) {
	t.Helper()
	p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("the mount's process: %v: %s", err, p.out)
	}
	var u, d int
	if _, err := fmt.Sscanf(p.out.String(), "up=%d\ndown=%d", &u, &d); err != nil {
		t.Fatalf("%v: %s", err, p.out)
	}
	return time.Duration(u) * time.Millisecond, time.Duration(d) * time.Millisecond
}

func (m machine) ensureMounts(t *testing.T, cfg MountsConfig) {
	t.Helper()
	var err error
	m.host.do(func() { err = m.keeper.EnsureMounts(t.Context(), cfg) })
	if err != nil {
		t.Fatal(err)
	}
}

func (m machine) moved(t *testing.T, run string) Moved {
	t.Helper()
	var moved Moved
	var found bool
	var err error
	m.host.do(func() { moved, found, err = MountsMoved(t.Context(), host8, run) })
	if err != nil || !found {
		t.Fatalf("what was moved: found %t, %v", found, err)
	}
	return moved
}

// mountsOf returns a run's configuration, and removes its group at the end.
func mountsOf(t *testing.T, run string) MountsConfig {
	t.Helper()
	cfg := MountsConfig{Host8: host8, Run: "lse_" + run + "-e1", Egress: EgressFull, Guest: one}
	t.Cleanup(func() {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			err := removeGroup(host8, cfg.Run)
			if err == nil {
				return
			}
			if time.Now().After(deadline) {
				t.Error(err)
				return
			}
		}
	})
	return cfg
}

// What a run's mounts move is limited as what its guest moves is, in each direction, and by the same limit: both
// together take as long as the limit implies. Processes outside the group are not slowed down, and another run's mounts
// have limits of their own.
func TestMountsShareTheLimitOfTheirLease(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const size, mbps = 4_000_000, 20
	const addr = "198.51.100.8:443"
	m.outside.echo(t, "443", size)
	// of which a second's worth may come at once
	least := func(bytes float64) time.Duration {
		return time.Duration((bytes/(mbps*125_000.) - 1.2) * float64(time.Second))
	}
	for _, tc := range []struct {
		name   string
		egress Egress
		caps   Caps
		up     bool
		down   bool
	}{
		{"up", EgressFull, Caps{UpMbps: mbps, DownMbps: MaxMbps}, true, false},
		{"down", EgressOff, Caps{DownMbps: mbps}, false, true},
		{"limited", EgressLimited, Caps{UpMbps: MaxMbps, DownMbps: mbps}, true, true},
	} {
		cfg := mountsOf(t, "alone_"+tc.name)
		cfg.Egress, cfg.Caps = tc.egress, tc.caps
		m.ensureMounts(t, cfg)
		up, down := m.startMount(t, cfg.Run, addr, size).wait(t)
		if tc.up && up < least(size) || tc.down && down < least(size) {
			t.Errorf("%s: 4 MB of a mount went up in %v and came down in %v, want at least %v", tc.name, up, down,
				least(size))
		}
		if got := m.moved(t, cfg.Run); got.Up < size || got.Down < size || got.Up > 2*size || got.Down > 2*size {
			t.Errorf("%s: counted %+v of %d bytes in each direction", tc.name, got, size)
		}
	}

	cfg := mountsOf(t, "both")
	cfg.Caps = Caps{UpMbps: mbps}
	m.ensureCaps(t, cfg.Caps, map[netip.Addr]Egress{one: EgressFull})
	m.ensureMounts(t, cfg)
	p := m.startMount(t, cfg.Run, addr, size)
	guest := make(chan error)
	began := time.Now()
	go func() {
		guest <- exchange(func() (net.Conn, error) { return m.c1.dial(addr, time.Minute) }, size)
	}()
	p.wait(t)
	if err := <-guest; err != nil {
		t.Fatal(err)
	}
	if took, want := time.Since(began), least(2*size); took < want {
		t.Errorf("guest and mount sent 8 MB in %v, want at least %v", took, want)
	}
	before := m.moved(t, cfg.Run)
	m.startMount(t, "", addr, size).wait(t)
	if after := m.moved(t, cfg.Run); after != before {
		t.Errorf("a process outside the group was counted: %+v, then %+v", before, after)
	}
}

// The counters of a run's mounts survive a change of the run's guest or limits and a damaged table, which is repaired;
// a later agent finds them. What goes to networks that the host is in is not on the line. The table of a run that is
// not known is removed, and that of another one stays.
func TestMountsAreCountedOn(t *testing.T) {
	t.Parallel()
	m := newMachine(t)
	const size = 100_000
	m.outside.echo(t, "443", size)
	cfg := mountsOf(t, "counted")
	cfg.Guest = netip.Addr{}
	m.ensureMounts(t, cfg)
	m.startMount(t, cfg.Run, "192.168.1.10:443", size).wait(t)
	m.startMount(t, cfg.Run, "203.0.113.9:443", size).wait(t)
	if got := m.moved(t, cfg.Run); got != (Moved{}) {
		t.Errorf("counted %+v in the host's own networks", got)
	}
	m.startMount(t, cfg.Run, "198.51.100.8:443", size).wait(t)
	was := m.moved(t, cfg.Run)
	if was.Up < size || was.Down < size {
		t.Fatalf("counted %+v", was)
	}
	cfg.Guest, cfg.Caps = one, Caps{UpMbps: 100}
	m.ensureMounts(t, cfg)
	m.host.run(t, "", "nft", "flush", "chain", "inet", cfg.table(), "output")
	m.startMount(t, cfg.Run, "198.51.100.8:443", size).wait(t)
	if got := m.moved(t, cfg.Run); got.Up != was.Up {
		t.Fatalf("the flushed table counts up: %+v after %+v", got, was)
	}
	was = m.moved(t, cfg.Run)
	m.keeper = &Keeper{} // of the next agent
	m.ensureMounts(t, cfg)
	if got := m.moved(t, cfg.Run); got != was {
		t.Errorf("after a repair: %+v, want %+v", got, was)
	}
	m.startMount(t, cfg.Run, "198.51.100.8:443", size).wait(t)
	if got := m.moved(t, cfg.Run); got.Up < was.Up+size {
		t.Errorf("after a repair it does not count on: %+v after %+v", got, was)
	}

	other := mountsOf(t, "other")
	m.ensureMounts(t, other)
	var err error
	m.host.do(func() {
		err = SweepMounts(t.Context(), host8, func(run string) bool { return run != cfg.Run })
	})
	if err != nil {
		t.Fatal(err)
	}
	var found bool
	m.host.do(func() { _, found, err = MountsMoved(t.Context(), host8, cfg.Run) })
	if err != nil || found {
		t.Errorf("after a sweep: found %t, %v", found, err)
	}
	m.moved(t, other.Run)
	if err := MountsLimited(t.Context()); err != nil {
		t.Errorf("this machine cannot limit mounts: %v", err)
	}
}
