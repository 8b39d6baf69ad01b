package journal

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"log/slog"
	mrand "math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/merkle"
)

var (
	pub, key, _ = ed25519.GenerateKey(rand.Reader)
	leaseA      = agentapi.LeaseRef{Lease: "ls_a", Epoch: 1}
	leaseB      = agentapi.LeaseRef{Lease: "ls_b", Epoch: 4}
)

func config(boot string) Config {
	return Config{Host: "host_1", Key: key, BootID: boot, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
}

func open(t testing.TB, dir string, cfg Config) *Journal {
	t.Helper()
	j, err := Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func tick(t testing.TB, j *Journal, ref agentapi.LeaseRef, boot int64) {
	t.Helper()
	ok(t, j.Tick([]Tick{{LeaseRef: ref, BootMS: boot}}))
}

// checkChain fails unless segs are one run's: signed, numbered from first, abutting, within bounds.
func checkChain(t testing.TB, segs []agentapi.Segment, first int64) {
	t.Helper()
	for i, s := range segs {
		if err := s.Verify("host_1", pub); err != nil {
			t.Fatalf("segment %d: %v: %+v", i, err, s)
		}
		if s.Seq != first+int64(i) {
			t.Fatalf("segment %d has number %d, want %d", i, s.Seq, first+int64(i))
		}
		if i > 0 && (s.StartMS != segs[i-1].EndMS || s.Anchor < segs[i-1].Anchor || segs[i-1].Final) {
			t.Fatalf("segment %d does not follow the one before: %+v after %+v", i, s, segs[i-1])
		}
	}
}

func of(segs []agentapi.Segment, ref agentapi.LeaseRef) (out []agentapi.Segment) {
	for _, s := range segs {
		if s.Lease == ref.Lease && s.Epoch == ref.Epoch {
			out = append(out, s)
		}
	}
	return out
}

func TestARunIsProvenToTheMillisecond(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), config("b1"))
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, BootMS: 1000, ServerMS: 5_000_000}))
	ok(t, j.Start(leaseA, 2000, nil))
	ok(t, j.Start(leaseA, 9000, nil)) // again: the first stands
	for boot := int64(7000); boot < 700_000; boot += 5000 {
		tick(t, j, leaseA, boot)
	}
	ok(t, j.End(leaseA, 700_123))
	ok(t, j.End(leaseA, 800_000)) // again: the first stands
	tick(t, j, leaseA, 810_000)   // late: ignored
	segs := j.Pending(agentapi.MaxSegments)
	checkChain(t, segs, 1)
	if n := len(segs); n != 3 || !segs[n-1].Final || segs[0].StartMS != 5_001_000 || segs[n-1].EndMS != 5_699_123 {
		t.Errorf("got %+v", segs)
	}
	if j.Drained(leaseA) {
		t.Error("drained before the acknowledgement")
	}
	ok(t, j.Ack([]agentapi.UsageAck{{LeaseRef: leaseA, BootID: "b1", Through: 2}}))
	if p := j.Pending(10); len(p) != 1 || p[0].Seq != 3 {
		t.Errorf("after an ack through 2: %+v", p)
	}
	ok(t, j.Ack([]agentapi.UsageAck{{LeaseRef: leaseA, BootID: "b1", Through: 3, Refused: "too late"}}))
	if !j.Drained(leaseA) || len(j.s.Runs) != 0 {
		t.Error("not drained after all was acknowledged")
	}
}

// A report's list is signed as a whole once it is long enough for that, and each segment is signed in any case.
func TestAReportIsSignedAsAWhole(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), config("b1"))
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, BootMS: 1000, ServerMS: 5_000_000}))
	ok(t, j.Start(leaseA, 2000, nil))
	tick(t, j, leaseA, 2000+agentapi.MinBatch*300_000)
	if segs, signature := j.Report(agentapi.MinBatch - 1); len(segs) != agentapi.MinBatch-1 || signature != nil {
		t.Errorf("%d segments, signature %x", len(segs), signature)
	}
	segs, signature := j.Report(agentapi.MaxSegments)
	checkChain(t, segs, 1)
	hashes := make([][32]byte, len(segs))
	for i, s := range segs {
		hashes[i] = s.Hash("host_1")
	}
	if len(segs) != agentapi.MinBatch || !ed25519.Verify(pub, agentapi.BatchPayload("host_1", len(segs),
		merkle.Root(hashes)), signature) {
		t.Errorf("%d segments, signature %x", len(segs), signature)
	}
}

func TestARestartedAgentGoesOnWithTheSameNumbers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, config("b1"))
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, ServerMS: 1_000_000}))
	ok(t, j.Start(leaseA, 0, nil))
	tick(t, j, leaseA, 5000)
	ok(t, j.Cut(leaseA))
	tick(t, j, leaseA, 10_000)
	ok(t, j.Close())

	j = open(t, dir, config("b1"))
	if last, open := j.LastTick(leaseA); !open || last != 10_000 {
		t.Fatalf("last tick %d %v", last, open)
	}
	tick(t, j, leaseA, 650_000) // the agent was away for ten minutes, the workload was not
	ok(t, j.End(leaseA, 650_500))
	segs := j.Pending(100)
	checkChain(t, segs, 1)
	if n := len(segs); n != 4 || segs[n-1].EndMS != 1_650_500 {
		t.Errorf("got %d segments: %+v", n, segs)
	}
}

func TestANewBootEndsOldRunsAtTheirLastTick(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, config("b1"))
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, ServerMS: 1_000_000}))
	ok(t, j.Start(leaseA, 100, nil))
	ok(t, j.Start(leaseB, 100, nil))
	tick(t, j, leaseA, 5100)
	ok(t, j.Close())

	j = open(t, dir, config("b2"))
	segs := j.Pending(100)
	a, b := of(segs, leaseA), of(segs, leaseB)
	checkChain(t, a, 1)
	checkChain(t, b, 1)
	if len(a) != 1 || !a[0].Final || a[0].EndMS != 1_005_100 || a[0].BootID != "b1" {
		t.Errorf("ticked run: %+v", a)
	}
	if len(b) != 1 || !b[0].Final || b[0].EndMS != b[0].StartMS {
		t.Errorf("a run never ticked proves nothing: %+v", b)
	}
	if _, known := j.Anchor(); known {
		t.Error("an anchor of the old boot counts for the new one")
	}
	if _, open := j.LastTick(leaseA); open {
		t.Error("the run goes on in the new boot")
	}
}

func TestARunBeforeTheFirstAnchorIsMappedLater(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), config("b1"))
	ok(t, j.Start(leaseA, 100, nil))
	tick(t, j, leaseA, 400_000)
	ok(t, j.End(leaseA, 400_100))
	if p := j.Pending(1); len(p) != 0 {
		t.Fatalf("segment without an anchor: %+v", p)
	}
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, BootMS: 500_000, ServerMS: 1_500_000}))
	segs := j.Pending(10)
	checkChain(t, segs, 1)
	if len(segs) != 2 || segs[0].StartMS != 1_000_100 || segs[1].EndMS != 1_400_100 {
		t.Errorf("%+v", segs)
	}
}

// TestACrashAtAnyByteLosesOnlyWhatWasNotSynced cuts the file at every offset, as a crash may, and goes on from there.
func TestACrashAtAnyByteLosesOnlyWhatWasNotSynced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, config("b1"))
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, ServerMS: 1_000_000}))
	ok(t, j.Start(leaseA, 0, map[string]int64{"g": 5}))
	for i := int64(1); i <= 3; i++ {
		ok(t, j.Tick([]Tick{{LeaseRef: leaseA, BootMS: i * 200_000, Counters: map[string]int64{"g": 5 + i}}}))
	}
	ok(t, j.Ack([]agentapi.UsageAck{{LeaseRef: leaseA, BootID: "b1", Through: 1}}))
	ok(t, j.End(leaseA, 610_000))
	whole, err := os.ReadFile(j.path(j.num))
	ok(t, err)
	var all []agentapi.Segment
	replay(whole, func(r record) {
		if r.Segment != nil {
			all = append(all, *r.Segment)
		}
	})
	checkChain(t, all, 1)

	crash := t.TempDir()
	for n := 0; n <= len(whole); n++ {
		ok(t, os.WriteFile(filepath.Join(crash, filepath.Base(j.path(j.num))), whole[:n], 0o600))
		k, err := Open(crash, config("b1"))
		if err != nil {
			t.Fatalf("cut at %d of %d: %v", n, len(whole), err)
		}
		before := k.Pending(100)
		for i, s := range before { // what was written comes back byte by byte
			if diff := cmp.Diff(all[s.Seq-1], s); diff != "" {
				t.Fatalf("cut at %d: segment %d: %s", n, i, diff)
			}
		}
		// It goes on: the same anchor again, the same run, to its end.
		ok(t, k.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, ServerMS: 1_000_000}))
		ok(t, k.Start(leaseA, 0, nil))
		ok(t, k.End(leaseA, 610_000))
		if after := k.Pending(100); len(after) > 0 {
			checkChain(t, after, after[0].Seq)
			if last := after[len(after)-1]; !last.Final || last.EndMS != 1_610_000 {
				t.Fatalf("cut at %d: ends with %+v", n, last)
			}
		}
		ok(t, k.Close())
		for _, num := range must(k.list()) {
			ok(t, os.Remove(k.path(num)))
		}
	}
}

func TestDamageInTheMiddleKeepsWhatIsBefore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, config("b1"))
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, ServerMS: 1_000_000}))
	ok(t, j.Start(leaseA, 0, nil))
	size := j.size
	tick(t, j, leaseA, 5000)
	ok(t, j.Close())
	b, err := os.ReadFile(j.path(j.num))
	ok(t, err)
	b[size+frameHeader+3] ^= 1
	ok(t, os.WriteFile(j.path(j.num), b, 0o600))
	j = open(t, dir, config("b1"))
	if last, open := j.LastTick(leaseA); !open || last != 0 {
		t.Errorf("last tick %d, open %v; want the start", last, open)
	}
}

func TestRotationKeepsEverythingAndOldFilesGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := config("b1")
	cfg.RotateBytes = 2000
	now := time.Now()
	cfg.Now = func() time.Time { return now }
	j := open(t, dir, cfg)
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, ServerMS: 1_000_000}))
	ok(t, j.Start(leaseA, 0, nil))
	for i := int64(1); i <= 60; i++ {
		tick(t, j, leaseA, i*60_000)
	}
	segs := j.Pending(100)
	checkChain(t, segs, 1)
	if len(segs) != 12 {
		t.Fatalf("%d segments of an hour", len(segs))
	}
	ok(t, j.Ack([]agentapi.UsageAck{{LeaseRef: leaseA, BootID: "b1", Through: 12}}))
	if files := must(j.list()); len(files) < 3 {
		t.Fatalf("files %v: nothing was rotated", files)
	}

	// A database restored from before: all of it is offered again, once.
	ok(t, j.Replay())
	ok(t, j.Replay())
	again := j.Pending(100)
	checkChain(t, again, 1)
	if diff := cmp.Diff(segs, again); diff != "" {
		t.Error(diff)
	}
	ok(t, j.Ack([]agentapi.UsageAck{{LeaseRef: leaseA, BootID: "b1", Through: 12}}))

	// Eight days on, the archive goes.
	now = now.Add(8 * 24 * time.Hour)
	for i := int64(61); i <= 80; i++ {
		tick(t, j, leaseA, i*60_000)
	}
	if files := must(j.list()); len(files) > 2 {
		t.Errorf("files %v still there after eight days", files)
	}
	checkChain(t, j.Pending(100), 13)
}

func TestFilesAreBounded(t *testing.T) {
	t.Parallel()
	cfg := config("b1")
	cfg.RotateBytes, cfg.MaxBytes = 2000, 8000
	j := open(t, t.TempDir(), cfg)
	ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: 1, ServerMS: 1_000_000}))
	ok(t, j.Start(leaseA, 0, nil))
	for i := int64(1); i <= 200; i++ {
		tick(t, j, leaseA, i*5000)
	}
	total := int64(0)
	for _, num := range must(j.list()) {
		info, err := os.Stat(j.path(num))
		ok(t, err)
		total += info.Size()
	}
	if total > cfg.MaxBytes+2*cfg.RotateBytes {
		t.Errorf("%d bytes on disk", total)
	}
	checkChain(t, j.Pending(100), 1)
}

// TestAnyHistoryIsAChain drives random histories with restarts, jumps of the server's clock and cuts, and checks what
// always holds.
func TestAnyHistoryIsAChain(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := mrand.New(mrand.NewPCG(seed, 1))
			dir := t.TempDir()
			cfg := config("b1")
			cfg.RotateBytes = 3000
			j := open(t, dir, cfg)
			boot, anchor := int64(1000), int64(0)
			seen := map[int64]agentapi.Segment{}
			ok(t, j.Start(leaseA, boot, nil))
			for range 60 {
				boot += rnd.Int64N(200_000)
				switch rnd.IntN(6) {
				case 0:
					anchor++
					ok(t, j.SetAnchor(agentapi.Anchor{
						BootID:   "b1",
						Number:   anchor,
						BootMS:   boot,
						ServerMS: 9_000_000 + boot + rnd.Int64N(40_000) - 20_000,
					}))
				case 1:
					ok(t, j.Cut(leaseA))
				case 2:
					ok(t, j.Close())
					j = open(t, dir, cfg)
				default:
					tick(t, j, leaseA, boot)
				}
				for _, s := range j.Pending(1000) {
					if old, known := seen[s.Seq]; known && cmp.Diff(old, s) != "" {
						t.Fatalf("segment %d changed", s.Seq)
					}
					seen[s.Seq] = s
				}
			}
			ok(t, j.SetAnchor(agentapi.Anchor{BootID: "b1", Number: anchor + 1, BootMS: boot, ServerMS: 9_000_000 + boot}))
			ok(t, j.End(leaseA, boot))
			segs := j.Pending(1000)
			checkChain(t, segs, 1)
			last := segs[len(segs)-1]
			if !last.Final || last.BootEndMS != boot {
				t.Errorf("ends with %+v, want boot %d", last, boot)
			}
			if length := last.EndMS - segs[0].StartMS; length < boot-1000-45_000 || length > boot-1000+45_000 {
				t.Errorf("proves %d ms of %d", length, boot-1000)
			}
		})
	}
}

func FuzzReplay(f *testing.F) {
	f.Add(appendFrame(nil, []byte(`{"checkpoint":{"boot":"b"}}`)))
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 0, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s state
		good, whole := replay(b, func(r record) { s.apply(r) })
		if good < 0 || good > len(b) || (good > 0) != whole {
			t.Errorf("good %d of %d, whole %v", good, len(b), whole)
		}
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
