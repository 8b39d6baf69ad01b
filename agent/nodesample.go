package agent

import (
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/nodeuse"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/internal/agentapi"
)

// nodeProcess is the first process of a run's workload.
type nodeProcess struct {
	ref       agentapi.LeaseRef
	pid       int
	container string
	scratch   string // folder of its scratch; "" = none
}

// workloads returns the runs whose workload runs, by their last observation.
func (a *Agent) workloads() (out []nodeProcess) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.leases {
		for _, r := range l.runs {
			if !r.rec.Started || r.rec.Outcome != nil || r.workPID == 0 {
				continue
			}
			p := nodeProcess{ref: r.ref, pid: r.workPID, container: r.rec.WorkID}
			if r.rec.Spec.ScratchGB > 0 && r.rec.Scratch != "" {
				p.scratch = scratch.Data(r.rec.Scratch)
			}
			out = append(out, p)
		}
	}
	return out
}

// nodeSamples reads the counters of every workload that runs. A run whose process has ended meanwhile has no sample.
func (a *Agent) nodeSamples() []agentapi.NodeSample {
	all := a.workloads()
	if len(all) == 0 {
		return nil
	}
	used := a.scratchUse(all)
	reader := nodeuse.Reader{Overlay: overlay.Interface}
	boot := a.cfg.BootMS()
	var at int64
	if anchor, ok := a.journal.Anchor(); ok {
		at = anchor.At(boot)
	}
	var out []agentapi.NodeSample
	for _, p := range all {
		u, err := reader.Of(p.pid, p.container)
		if err != nil {
			a.log.Debug("what a node exchanges is not known", "lease", p.ref, "err", err)
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
func (a *Agent) scratchUse(all []nodeProcess) map[agentapi.LeaseRef]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.readingScratch {
		a.readingScratch = true
		go func() {
			used := map[agentapi.LeaseRef]int64{}
			for _, p := range all {
				var st unix.Statfs_t
				if p.scratch != "" && unix.Statfs(p.scratch, &st) == nil {
					used[p.ref] = int64(st.Blocks-st.Bfree) * st.Bsize
				}
			}
			a.mu.Lock()
			defer a.mu.Unlock()
			a.readingScratch, a.scratchUsed = false, used
		}()
	}
	return a.scratchUsed
}
