package overlay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/internal/agentapi"
)

const cidr = "10.77.0.0/20"

func address(rank int) string { return fmt.Sprintf("10.77.0.%d", rank+1) }

// rank is one node of a test's cluster.
type rank struct {
	n   int
	ns  namespace
	cfg Config
	h   *Handle
}

func newRank(t *testing.T, n int) *rank {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(leasefiles.At(dir).Overlay, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &rank{n: n, ns: newNamespace(t)}
	r.cfg = Config{
		Dir: dir, Ref: agentapi.LeaseRef{Lease: fmt.Sprintf("lease_%d", n), Epoch: 1}, NetNS: r.ns.path(),
		Address: address(n), CIDR: cidr, Advertise: []string{"127.0.0.1"},
	}
	t.Cleanup(func() {
		if err := Stop(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	r.ensure(t)
	return r
}

func (r *rank) ensure(t *testing.T) {
	t.Helper()
	h, err := Ensure(t.Context(), r.cfg)
	if err != nil {
		log, _ := os.ReadFile(folder(r.cfg.Dir) + "/log")
		t.Fatalf("rank %d: %v\n%s", r.n, err, log)
	}
	r.h = h
}

// freeze has the rank's process stand still.
func (r *rank) freeze(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(r.h.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "the process stands still", patient, func() bool {
		st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", r.h.PID()))
		return err == nil && strings.Contains(string(st), ") T ")
	})
}

func (r *rank) peer() agentapi.Peer {
	return agentapi.Peer{Rank: r.n, Address: address(r.n), Key: r.h.PublicKey(), Endpoints: r.h.Endpoints()}
}

// cluster is n ranks that know each other.
func cluster(t *testing.T, n int) []*rank {
	t.Helper()
	ranks := make([]*rank, n)
	for i := range ranks {
		ranks[i] = newRank(t, i)
	}
	for _, r := range ranks {
		var peers []agentapi.Peer
		for _, o := range ranks {
			if o != r {
				peers = append(peers, o.peer())
			}
		}
		if err := r.h.SetPeers(t.Context(), peers); err != nil {
			t.Fatal(err)
		}
	}
	return ranks
}

// dial connects from one rank to another's port over the overlay.
func (r *rank) dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	var c net.Conn
	r.ns.do(t, func() (err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var d net.Dialer
		c, err = d.DialContext(ctx, "tcp4", addr)
		return err
	})
	t.Cleanup(func() { c.Close() })
	return c
}

func await(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("%s: not within %v", what, limit)
		case <-tick.C:
		}
	}
}

// A transfer between two ranks goes on after the receiver's overlay process is killed and started again.
func TestTCPSurvivesKilledOverlay(t *testing.T) {
	t.Parallel()
	ranks := cluster(t, 2)
	a, b := ranks[0], ranks[1]
	l := b.ns.listen(t, address(1)+":9000")
	const total = 48 << 20
	half := make(chan struct{})
	sum := make(chan string, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			sum <- err.Error()
			return
		}
		h := sha256.New()
		io.CopyN(h, c, total/2)
		close(half)
		n, err := io.Copy(h, c)
		sum <- fmt.Sprint(hex.EncodeToString(h.Sum(nil)), n, err)
	}()
	c := a.dial(t, address(1)+":9000")
	sent, all := sha256.New(), make(chan struct{})
	go func() {
		defer close(all)
		src := rand.NewChaCha8([32]byte{1})
		io.Copy(io.MultiWriter(c, sent), io.LimitReader(src, total))
		c.Close()
	}()
	<-half

	moved := func(r *rank) Traffic {
		t.Helper()
		m, err := ReadTraffic(r.cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	await(t, "what arrived is written down", patient, func() bool { return moved(b).Received >= total/2 })

	key, port := b.h.PublicKey(), b.h.Endpoints()[0]
	gone := make(chan error, 1)
	go func() { gone <- b.h.Wait(t.Context()) }()
	await(t, "the holder is known", patient, func() bool { pid, _ := holder(b.h.dir); return pid == b.h.PID() })
	syscall.Kill(b.h.PID(), syscall.SIGKILL)
	if err := <-gone; err != nil {
		t.Fatal("Wait:", err)
	}
	if _, err := b.h.Status(t.Context()); err == nil {
		t.Fatal("a killed process answers")
	}
	killed, before := time.Now(), moved(b)
	b.ensure(t)
	if b.h.Adopted() || b.h.PublicKey() != key || b.h.Endpoints()[0] != port {
		t.Errorf("after the kill: adopted %v, key kept %v, endpoint %s → %s", b.h.Adopted(), b.h.PublicKey() == key, port,
			b.h.Endpoints()[0])
	}
	// No SetPeers: the new process remembers.
	got := <-sum
	<-all
	if want := fmt.Sprint(hex.EncodeToString(sent.Sum(nil)), int64(total/2), nil); got != want {
		t.Errorf("received %s\nsent     %s", got, want)
	}
	t.Logf("the rest arrived %v after the kill", time.Since(killed))

	await(t, "the new process receives from its peer", patient, func() bool {
		st, err := b.h.Status(t.Context())
		return err == nil && st.Peers[0].Received
	})
	for _, r := range ranks {
		if err := Stop(t.Context(), r.cfg.Dir); err != nil {
			t.Fatal(err)
		}
	}
	if m := moved(a); m.Sent < total || m.Up != 0 || m.Down != 0 {
		t.Errorf("the sender has counted %+v, of %d bytes sent on this machine", m, total)
	}
	if m := moved(b); m.Received <= before.Received || m.Sent <= before.Sent || m.Up != 0 || m.Down != 0 {
		t.Errorf("the receiver has counted %+v, and %+v before it was killed", m, before)
	}
}

// A second Ensure, as a restarted agent makes it, finds the process; another epoch or another namespace does not.
func TestAdopt(t *testing.T) {
	t.Parallel()
	r := newRank(t, 0)
	pid := r.h.PID()
	r.ensure(t)
	if !r.h.Adopted() || r.h.PID() != pid {
		t.Errorf("same epoch: adopted %v, pid %d → %d", r.h.Adopted(), pid, r.h.PID())
	}
	r.cfg.Ref.Epoch++
	r.ensure(t)
	if r.h.Adopted() || r.h.PID() == pid {
		t.Error("another epoch was adopted")
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Error("the former epoch's process lives")
	}
	other := newNamespace(t)
	r.cfg.NetNS, pid = other.path(), r.h.PID()
	r.ensure(t)
	if r.h.Adopted() || r.h.PID() == pid {
		t.Error("a process in another namespace was adopted")
	}
	// A process that holds the lock and does not answer is replaced.
	pid = r.h.PID()
	r.freeze(t)
	r.cfg.Patience = time.Second
	r.ensure(t)
	if r.h.Adopted() || r.h.PID() == pid {
		t.Error("a process that does not answer was adopted")
	}
	if err := Stop(t.Context(), r.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	if pid, err := holder(folder(r.cfg.Dir)); pid != 0 || err != nil {
		t.Errorf("after Stop the lock is held by %d, %v", pid, err)
	}
	if err := Stop(t.Context(), r.cfg.Dir); err != nil {
		t.Error("second Stop:", err)
	}
}

// Ensure waits for a process that only waits for its turn on an overloaded machine: replacing it would interrupt its
// traffic. A caller that stops waiting leaves it alone.
func TestASlowProcessIsNotReplaced(t *testing.T) {
	t.Parallel()
	r := newRank(t, 0)
	pid := r.h.PID()
	r.freeze(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Ensure(ctx, r.cfg); err == nil {
		t.Error("Ensure succeeds for a caller that has given up")
	}
	if now, err := holder(r.h.dir); now != pid || err != nil {
		t.Fatalf("a caller that gave up replaced process %d by %d, %v", pid, now, err)
	}
	r.cfg.Patience = 10 * time.Minute
	began, done := time.Now(), make(chan error, 1)
	go func() {
		h, err := Ensure(t.Context(), r.cfg)
		if err == nil && (!h.Adopted() || h.PID() != pid) {
			err = fmt.Errorf("process %d was replaced by %d", pid, h.PID())
		}
		done <- err
	}()
	await(t, "a while", patient, func() bool { return time.Since(began) > 1500*time.Millisecond })
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Traffic for the overlay's range never leaves by eth0, even when ovl0 is gone.
func TestNothingLeaksWithoutTheDevice(t *testing.T) {
	t.Parallel()
	r := newRank(t, 0)
	gateway := newNamespace(t)
	wire(t, r.ns, "eth0", "192.0.2.2/24", gateway, "gw0", "192.0.2.1/24")
	r.ns.ip(t, "route", "add", "default", "via", "192.0.2.1")
	gateway.ip(t, "addr", "add", address(1)+"/32", "dev", "lo") // the leak would arrive here
	gateway.ip(t, "addr", "add", "198.51.100.7/32", "dev", "lo")
	gateway.listen(t, "0.0.0.0:9000")

	r.dial(t, "198.51.100.7:9000") // the way out is open
	if err := Stop(t.Context(), r.cfg.Dir); err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{"there, without a process", "gone"} {
		if device == "gone" {
			r.ns.ip(t, "link", "del", Interface)
		}
		err := netns.Inside(r.ns.file, func() error {
			c, err := net.DialTimeout("tcp4", address(1)+":9000", 300*time.Millisecond)
			if err == nil {
				c.Close()
			}
			return err
		})
		if err == nil {
			t.Errorf("device %s: traffic for rank 1 left by eth0", device)
		}
	}
}

// A peer that stops sending is down after PeerSilence, whatever runs in its guest; others are not.
func TestSilentPeerIsDown(t *testing.T) {
	t.Parallel()
	ranks := cluster(t, 3)
	received := func() bool {
		s, err := ranks[0].h.Status(t.Context())
		return err == nil && len(s.Peers) == 2 && s.Peers[0].Received && s.Peers[1].Received &&
			!s.Peers[0].LastHandshake.IsZero()
	}
	await(t, "packets of all peers", patient, received)
	syscall.Kill(ranks[2].h.PID(), syscall.SIGKILL)
	start := time.Now()
	await(t, "rank 2 down, and no other", patient, func() bool {
		s, err := ranks[0].h.Status(t.Context())
		return err == nil && slices.Equal(s.PeersDown(), []int{2})
	})
	t.Logf("found down after %v", time.Since(start))
}

// Peers change live: a replaced peer takes over the address, an unchanged one keeps its session.
func TestSetPeersLive(t *testing.T) {
	t.Parallel()
	ranks := cluster(t, 3)
	a := ranks[0]
	status := func() Status {
		s, err := a.h.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	await(t, "sessions", patient, func() bool {
		s := status()
		return !s.Peers[0].LastHandshake.IsZero() && !s.Peers[1].LastHandshake.IsZero()
	})
	before := status()
	fresh := newRank(t, 2) // replaces rank 2: same address, another key
	if err := fresh.h.SetPeers(t.Context(), []agentapi.Peer{a.peer()}); err != nil {
		t.Fatal(err)
	}
	if err := a.h.SetPeers(t.Context(), []agentapi.Peer{ranks[1].peer(), fresh.peer()}); err != nil {
		t.Fatal(err)
	}
	l := fresh.ns.listen(t, address(2)+":9000")
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "fresh")
			c.Close()
		}
	}()
	got, err := io.ReadAll(a.dial(t, address(2)+":9000"))
	if string(got) != "fresh" || err != nil {
		t.Errorf("from the replaced rank: %q, %v", got, err)
	}
	if after := status(); after.Peers[0].LastHandshake != before.Peers[0].LastHandshake || len(after.Peers) != 2 {
		t.Errorf("the unchanged peer's session was disturbed: %+v", after.Peers)
	}
	for _, bad := range []agentapi.Peer{
		{Rank: 1, Address: address(1), Key: "AAAA"},
		{Rank: 1, Address: "node-1", Key: a.h.PublicKey()},
		{Rank: 1, Address: address(1), Key: a.h.PublicKey(), Endpoints: []string{"example.org:1"}},
	} {
		if err := a.h.SetPeers(t.Context(), []agentapi.Peer{bad}); err == nil {
			t.Errorf("peer %+v was taken", bad)
		}
	}
	if s := status(); len(s.Peers) != 2 {
		t.Errorf("a refused change was half made: %+v", s.Peers)
	}
}

// A guest that cannot exist is refused with a message.
func TestEnsureRefuses(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	good := Config{
		Dir:     t.TempDir(),
		Ref:     agentapi.LeaseRef{Lease: "lease_x", Epoch: 1},
		NetNS:   ns.path(),
		Address: address(0),
		CIDR:    cidr,
	}
	for name, spoil := range map[string]func(*Config){
		"no namespace":  func(c *Config) { c.NetNS = "/proc/0/ns/net" },
		"no address":    func(c *Config) { c.Address = "node-0" },
		"out of range":  func(c *Config) { c.Address = "10.99.0.1" },
		"no range":      func(c *Config) { c.CIDR = "10.77.0.0" },
		"no folder":     func(c *Config) { c.Dir = "/nonexistent" },
		"not a program": func(c *Config) { os.MkdirAll(folder(c.Dir), 0o700); c.Command = []string{"/bin/false"} },
	} {
		cfg := good
		spoil(&cfg)
		if _, err := Ensure(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			t.Log(name, "→", err)
		}
	}
}

// The key is readable by root only and the folder's other files hold nothing secret.
func TestKeyStaysPrivate(t *testing.T) {
	t.Parallel()
	r := newRank(t, 0)
	st, err := os.Stat(folder(r.cfg.Dir) + "/key")
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v, %v", st.Mode(), err)
	}
	// A machine may refuse negative scores even to root; then it must refuse them to a shell too.
	allowed := exec.Command("sh", "-c", "echo -900 > /proc/self/oom_score_adj").Run() == nil
	oom, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", r.h.PID()))
	if (string(oom) == "-900\n") != allowed || err != nil {
		t.Errorf("oom_score_adj: %q, %v; this machine allows it: %v", oom, err, allowed)
	}
	if sid, _, _ := syscall.Syscall(syscall.SYS_GETSID, uintptr(r.h.PID()), 0, 0); int(sid) != r.h.PID() {
		t.Errorf("session %d, pid %d: not its own", sid, r.h.PID())
	}
}

// Ranks that learn of each other at the same moment meet before WireGuard's own second try, five seconds later. On a
// busy machine a round may take longer: the quickest round counts.
func TestPeersMeetAtOnce(t *testing.T) {
	t.Parallel()
	quickest := patient
	for range 8 {
		ranks := cluster(t, 3)
		began := time.Now()
		await(t, "all ranks met", patient, func() bool {
			for _, r := range ranks {
				s, err := r.h.Status(t.Context())
				if err != nil || s.Peers[0].LastHandshake.IsZero() || s.Peers[1].LastHandshake.IsZero() {
					return false
				}
			}
			return true
		})
		quickest = min(quickest, time.Since(began))
	}
	if quickest > 4*time.Second {
		t.Errorf("the quickest of eight clusters met after %v", quickest)
	}
}
