package gpu

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// OwnerUse returns the leased GPUs that the host's own programs use as well, with the bytes of memory that those took
// when the use began, beyond what they held at the lease's start.
func (ow *Owners) OwnerUse() map[string]int64 {
	ow.reg.mu.Lock()
	defer ow.reg.mu.Unlock()
	out := map[string]int64{}
	for uuid, o := range ow.shared {
		out[uuid] = o.bytes
	}
	return out
}

// readShared finds the host's own programs on the GPUs that have a lease.
func (ow *Owners) readShared(ctx context.Context, leased []string) {
	before := ow.noted()
	uses, _ := each[wire.Use](ctx, ow.driver, wire.MethodUse, leased)
	after, _ := ow.leasedNow()
	ow.reg.mu.Lock()
	defer ow.reg.mu.Unlock()
	changed := false
	for uuid := range ow.shared {
		if !after[uuid] { // no lease any more: the use is not shared
			delete(ow.shared, uuid)
			changed = true
		}
	}
	for uuid, use := range uses {
		r := ow.reg.mem.GPUs[uuid]
		if r == nil || r.Before != before[uuid] || r.Before == nil || !after[uuid] {
			continue // the use at the lease's start is unknown, or the lease is another by now
		}
		says, bytes := ow.describeShared(use, *r.Before)
		if ow.note(ow.shared, uuid, says, bytes) {
			ow.reg.log.Info("what the host itself runs on a leased GPU has changed", "gpu", uuid, "use", says)
			changed = true
		}
	}
	if changed {
		poke(ow.reg.changed)
	}
}

// noted returns the use of each GPU before its last lease.
func (ow *Owners) noted() map[string]*Use {
	ow.reg.mu.Lock()
	defer ow.reg.mu.Unlock()
	out := map[string]*Use{}
	for uuid, r := range ow.reg.mem.GPUs {
		out[uuid] = r.Before
	}
	return out
}

// describeShared returns which of the host's own programs use a leased GPU, and how much of its memory they hold
// beyond what they held before the lease; "" if that is within the allowed limit. Processes in containers are not
// counted: a lease's programs run in containers.
func (ow *Owners) describeShared(u wire.Use, before Use) (says string, beyond int64) {
	had := map[int]int64{}
	for _, p := range before.Processes {
		had[p.PID] = p.MemUsed
	}
	var own []wire.Process
	for _, p := range u.Processes {
		if p.MemUsed -= had[p.PID]; p.MemUsed > 0 && ow.outside(p.PID) {
			own = append(own, p)
			beyond += p.MemUsed
		}
	}
	if beyond <= max(ow.reg.cfg.OwnerMemory, 0) {
		return "", 0
	}
	slices.SortFunc(own, func(a, b wire.Process) int {
		return cmp.Or(cmp.Compare(b.MemUsed, a.MemUsed), cmp.Compare(a.PID, b.PID))
	})
	return ow.listed(own, beyond), beyond
}

// outside reports whether a process is known to be in no container.
func (ow *Owners) outside(pid int) bool {
	b, err := os.ReadFile(filepath.Join(ow.reg.cfg.ProcFS, strconv.Itoa(pid), "cgroup"))
	return err == nil && strings.Contains(string(b), ":/") && !containerID.Match(b)
}

// problems returns the problems of leased GPUs that the host's own programs use as well. reg.mu is held.
func (ow *Owners) problems(gpus []agentapi.GPU) []agentapi.Problem {
	var out []agentapi.Problem
	for _, g := range gpus {
		if o, ok := ow.shared[g.UUID]; ok {
			out = append(out, agentapi.Problem{
				Code:     agentapi.ProblemOwnerUse,
				Severity: "warn",
				Cause: fmt.Sprintf("Your programs use GPU %d, which is rented (%s more than when the lease began).", g.Index,
					o.by),
				Evidence: g.UUID,
				Fix: "The renter's work is slower for it and may run out of the GPU's memory; the cluster's page says so. " +
					"End them, or take the GPU back first: muster host reclaim.",
			})
		}
	}
	return out
}
