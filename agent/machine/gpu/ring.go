package gpu

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/internal/agentapi"
)

// ring is what a GPU sent over NVLink to the next GPU of its model while each of the host's GPUs of that model sent to
// its next one. Only a check of all of them says that: of some of them, the links to the others are idle, and a ring of
// two may have a link that a ring of all has not.
type ring struct {
	Tried time.Time `json:"tried,omitzero"` // when all GPUs of the model were last checked together
	At    time.Time `json:"at,omitzero"`    // when Gbps was measured
	Gbps  float64   `json:"gbps,omitempty"` // 0: not measured
	Next  string    `json:"next,omitempty"` // UUID
}

const (
	ringEvery = 7 * 24 * time.Hour  // how old a measurement becomes before idle GPUs make another one
	ringFor   = 30 * 24 * time.Hour // how long a measurement counts
)

// ringed notes what a check of the named GPUs has measured. A check that failed leaves what is known. reg.mu is held.
func (cs *Checks) ringed(res gpucheck.Result, checked []string) {
	for _, uuids := range cs.models() {
		if len(uuids) < 2 || slices.ContainsFunc(uuids, func(u string) bool { return !slices.Contains(checked, u) }) {
			continue
		}
		for _, uuid := range uuids {
			r := cs.reg.mem.GPUs[uuid]
			before := r.Ring
			r.Ring.Tried = cs.reg.cfg.Now()
			if res.Failure != nil {
				continue
			}
			r.Ring = ring{Tried: r.Ring.Tried}
			for _, g := range res.GPUs {
				if g.UUID == uuid && g.RingGbps > 0 {
					r.Ring.At, r.Ring.Gbps, r.Ring.Next = r.Ring.Tried, math.Floor(10*g.RingGbps)/10, g.Next
				}
			}
			if r.Ring.Gbps != before.Gbps || !r.Ring.At.Equal(before.At) {
				poke(cs.reg.changed) // the inventory says so
			}
		}
	}
}

// models returns the GPUs that were seen since the boot, by model, without those that are split. reg.mu is held.
func (cs *Checks) models() map[string][]string {
	out := map[string][]string{}
	for uuid, r := range cs.reg.mem.GPUs {
		if r.Seen == cs.reg.boot && r.GPU.KindOf() == agentapi.KindGPU && !r.GPU.MIG.Or(false) {
			out[r.GPU.Model] = append(out[r.GPU.Model], uuid)
		}
	}
	return out
}

// unringed returns the GPUs of the models whose NVLinks were not measured lately and whose GPUs are all idle. reg.mu
// is held.
func (cs *Checks) unringed(idle []string) (due []string) {
	for _, uuids := range cs.models() {
		old := false
		for _, uuid := range uuids {
			old = old || cs.reg.cfg.Now().Sub(cs.reg.mem.GPUs[uuid].Ring.Tried) >= ringEvery
		}
		if old && len(uuids) > 1 && !slices.ContainsFunc(uuids, func(u string) bool {
			return !slices.Contains(idle, u) || !hasNVLink(cs.reg.mem.GPUs[u].GPU)
		}) {
			due = append(due, uuids...)
		}
	}
	return due
}

func hasNVLink(g agentapi.GPU) bool {
	return slices.ContainsFunc(g.Links, func(l agentapi.Link) bool { return l.Type == agentapi.LinkNVLink })
}

// addRings adds to the GPUs of an inventory what they sent over NVLink. By the topology, a GPU may reach the next one
// over PCIe only: that is not said, because it is no figure of NVLink.
func (cs *Checks) addRings(gpus []agentapi.GPU, topology [][]string) {
	cs.reg.mu.Lock()
	defer cs.reg.mu.Unlock()
	place := map[string]int{}
	for i, g := range withoutSlices(gpus) {
		place[g.UUID] = i
	}
	for k := range gpus {
		g := &gpus[k]
		r := cs.reg.mem.GPUs[g.UUID]
		if r == nil || r.Ring.Gbps == 0 || cs.reg.cfg.Now().Sub(r.Ring.At) > ringFor {
			continue
		}
		i, here := place[g.UUID]
		j, there := place[r.Ring.Next]
		if here && there && strings.HasPrefix(topology[i][j], "NV") {
			g.RingGbps, g.RingAtMS = r.Ring.Gbps, r.Ring.At.UnixMilli()
		}
	}
}
