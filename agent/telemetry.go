package agent

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/nodeuse"
	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
)

// telemetry are the samples of GPUs and of nodes that the host sends.
type telemetry struct {
	gpus    GPUTelemetry
	link    Link
	journal *journal.Journal
	runs    *runs
	bootMS  func() int64
	now     func() time.Time
	log     *slog.Logger

	mu      sync.Mutex                  // guards what follows
	watched time.Time                   // end of live telemetry
	used    map[agentapi.LeaseRef]int64 // of scratches, as it was at the last sample
	// reading: a goroutine reads used again, which takes long if a disk hangs.
	reading bool
}

// watch sends live telemetry for a minute.
func (t *telemetry) watch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watched = t.now().Add(time.Minute)
}

const (
	telemetryLive = time.Second
	telemetryIdle = 10 * time.Second
)

// run sends samples: every second while a person watches, otherwise every ten. While nothing of a lease is on
// the host, and no person watches, it sends only those that say something new; see link.Calm.
func (t *telemetry) run(ctx context.Context) {
	last, calm := time.Time{}, link.Calm{}
	for pause(ctx, telemetryLive, nil) {
		t.mu.Lock()
		live := t.now().Before(t.watched)
		t.mu.Unlock()
		if !live && t.now().Sub(last) < telemetryIdle {
			continue
		}
		last = t.now()
		t.sample(ctx, live, &calm)
	}
}

// sample sends one sample of each GPU and run. With live it does so although nothing has changed.
func (t *telemetry) sample(ctx context.Context, live bool, calm *link.Calm) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	nodes := t.nodes()
	batch, err := t.gpus.Sample(ctx)
	if err != nil {
		batch.Samples = nil // the inventory and the health events contain the cause
	}
	now := t.now()
	if len(batch.Samples)+len(nodes) == 0 || !live && !t.runs.leased() && !calm.Due(batch.Samples, now) {
		return
	}
	if anchor, ok := t.journal.Anchor(); ok {
		for i := range batch.Samples {
			batch.Samples[i].AtMS = anchor.At(batch.BootMS)
		}
	}
	if err := t.link.Telemetry(agentapi.Telemetry{Samples: batch.Samples, Nodes: nodes}); err != nil {
		t.log.Debug("telemetry is lost", "err", err)
		*calm = link.Calm{}
		return
	}
	calm.Sent(batch.Samples, now)
}

// nodeProcess is the first process of a run's workload.
type nodeProcess struct {
	ref       agentapi.LeaseRef
	pid       int
	container string
	scratch   string // folder of its scratch; "" = none
}

// workloads returns the runs whose workload runs, by their last observation.
func (t *telemetry) workloads() (out []nodeProcess) {
	t.runs.mu.Lock()
	defer t.runs.mu.Unlock()
	for r := range t.runs.all() {
		if !r.rec.Started || r.rec.Outcome != nil || r.workPID == 0 {
			continue
		}
		p := nodeProcess{ref: r.ref, pid: r.workPID, container: r.rec.WorkID}
		if r.rec.Spec.ScratchGB > 0 && r.rec.Scratch != "" {
			p.scratch = scratch.Data(r.rec.Scratch)
		}
		out = append(out, p)
	}
	return out
}

// nodes reads the counters of every workload that runs. A run whose process has ended meanwhile has no sample.
func (t *telemetry) nodes() []agentapi.NodeSample {
	all := t.workloads()
	if len(all) == 0 {
		return nil
	}
	used := t.scratchUse(all)
	reader := nodeuse.Reader{Overlay: overlay.Interface}
	boot := t.bootMS()
	var at int64
	if anchor, ok := t.journal.Anchor(); ok {
		at = anchor.At(boot)
	}
	var out []agentapi.NodeSample
	for _, p := range all {
		u, err := reader.Of(p.pid, p.container)
		if err != nil {
			t.log.Debug("what a node exchanges is not known", "lease", p.ref, "err", err)
			continue
		}
		s := agentapi.NodeSample{LeaseRef: p.ref, AtMS: at, NetRx: u.NetRx, NetTx: u.NetTx, RanksRx: u.RanksRx,
			RanksTx: u.RanksTx, DiskRead: u.DiskRead, DiskWrite: u.DiskWrite}
		if n, ok := used[p.ref]; ok {
			s.Scratch = &n
		}
		out = append(out, s)
	}
	return out
}

// scratchUse returns what the runs' scratches use, as it was at the last sample. It reads the present use apart: a disk
// that hangs must delay no sample.
func (t *telemetry) scratchUse(all []nodeProcess) map[agentapi.LeaseRef]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.reading {
		t.reading = true
		go func() {
			used := map[agentapi.LeaseRef]int64{}
			for _, p := range all {
				var st unix.Statfs_t
				if p.scratch != "" && unix.Statfs(p.scratch, &st) == nil {
					used[p.ref] = int64(st.Blocks-st.Bfree) * st.Bsize
				}
			}
			t.mu.Lock()
			defer t.mu.Unlock()
			t.reading, t.used = false, used
		}()
	}
	return t.used
}
