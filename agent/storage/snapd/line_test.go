package snapd

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/net/line"
	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/volume/volumetest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// lines is a process for volumes, and the file systems of its volumes.
type lines struct {
	*daemon
	t    *testing.T
	disk *scratch.Store
	dir  string
}

// attached is a volume of a new lease.
func (l lines) attached() Attached {
	l.t.Helper()
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	if err := l.disk.MakeVolume(l.t.Context(), ref, "vol_a", 64<<20); err != nil {
		l.t.Fatal(err)
	}
	return Attached{Ref: ref, Root: l.disk.VolumePath(ref, "vol_a"), Moved: filepath.Join(l.dir, ref.Lease),
		Mount: agentapi.Mount{Path: "/data", Volume: "vol_a", Name: "a", Mode: agentapi.MountRW, SizeLimit: 64 << 20,
			Domain: "dom", Key: volumetest.Key, Snapshot: agentapi.SnapshotPolicy{OnNotice: true}}}
}

// until sends what should be attached until ok.
func (l lines) until(what string, wanted []Attached, ok func([]State) bool) {
	l.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(l.follow(wanted)); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("not within a minute: %s: %+v", what, l.follow(wanted))
		}
	}
}

// detached lets go of all volumes, and returns what a lease's have moved.
func (l lines) detached(a Attached) line.Moved {
	l.t.Helper()
	l.until("detached", nil, func(s []State) bool { return len(s) == 0 })
	m, err := line.Read(a.Moved)
	if err != nil {
		l.t.Fatal(err)
	}
	return m
}

// What a volume uploads and restores is counted for its lease, and for no other. On notice, and only then, an upload
// passes the lease's limit: at 1 Mbit/s this one would take more than a minute.
func TestVolumesAreCountedAndLimited(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Fatal("volumes need root: run the tests as root")
	}
	const size = 8 << 20
	p := volumetest.New(t)
	l := lines{t: t, disk: scratch.New(t.TempDir(), 0, "0badcafe"), dir: t.TempDir(), daemon: &daemon{
		log: slog.New(slog.DiscardHandler), freezes: t.TempDir(), workers: map[key]*worker{}, least: time.Millisecond,
		peers: map[agentapi.LeaseRef]*peers.Server{}, lines: map[agentapi.LeaseRef]*line.Line{}, server: p.Serve,
		onLine: func(netip.Addr) bool { return true },
	}}
	t.Cleanup(func() {
		if err := l.disk.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	writer := l.attached()
	writer.Limits = line.Limits{UpMbps: 1}
	l.until("attached", []Attached{writer}, func(s []State) bool { return s[0].Restored })
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	if err := os.WriteFile(filepath.Join(scratch.Data(writer.Root), "f"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	writer.Mount.SnapshotNow = id.New[id.Snapshot]().String()
	up := func() int64 {
		l.follow([]Attached{writer})
		p.Mu.Lock()
		defer p.Mu.Unlock()
		return p.Puts
	}
	begun := time.Now()
	for time.Since(begun) < 2*time.Second { // of the 67 s
		up()
		time.Sleep(50 * time.Millisecond)
	}
	if n := up(); n > size/2 {
		t.Errorf("%d bytes were sent at 1 Mbit/s", n)
	}
	writer.Notice = true
	l.until("durable", []Attached{writer}, func(s []State) bool { return s[0].Seq > 0 })
	if took := time.Since(begun); took > 40*time.Second {
		t.Errorf("on notice, the upload took %s", took)
	}
	writer.Ended, writer.Notice = true, false
	l.until("closed", []Attached{writer}, func(s []State) bool { return s[0].Closed })
	sent := l.detached(writer)
	if sent.Up < size || sent.Up > size+size/5 || sent.Down > size/5 {
		t.Errorf("of an upload of %d bytes: %+v", size, sent)
	}

	reader, other := l.attached(), l.attached()
	l.until("restored", []Attached{reader}, func(s []State) bool { return s[0].Restored })
	received := l.detached(reader)
	if received.Down < size || received.Down > size+size/5 || received.Up > size/5 {
		t.Errorf("of a restore of %d bytes: %+v", size, received)
	}
	if m, err := line.Read(other.Moved); err != nil || m != (line.Moved{}) {
		t.Errorf("of another lease: %+v, %v", m, err)
	}
	if m, err := line.Read(writer.Moved); err != nil || m != sent {
		t.Errorf("of the writer, after the restore: %+v of %+v, %v", m, sent, err)
	}
}
