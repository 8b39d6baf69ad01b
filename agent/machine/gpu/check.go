package gpu

import (
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/internal/agentapi"
)

// recheck is how long a GPU that failed its check is left alone before the next one.
const recheck = 10 * time.Minute

// Checks says which GPUs are due for a check (package gpucheck), and records what checks have found.
type Checks struct {
	reg    *registry
	owners *Owners
}

// Record records the result of a check of the named GPUs. A failure that names some of them is
// theirs alone; one that names none of them is that of all. A GPU that failed is suspect until it passes a check.
func (cs *Checks) Record(res gpucheck.Result, uuids ...string) {
	failure := res.Failure
	checked, failed, text := uuids, []string(nil), ""
	if failure != nil {
		text = failure.Error()
		for _, u := range uuids {
			if slices.Contains(failure.GPUs, u) {
				failed = append(failed, u)
			}
		}
		if len(failed) == 0 {
			failed = uuids
		}
		uuids = failed // what the others would have shown is not known
	}
	cs.reg.mu.Lock()
	defer cs.reg.mu.Unlock()
	cs.ringed(res, checked)
	for _, g := range res.GPUs {
		if r := cs.reg.mem.GPUs[g.UUID]; r != nil && r.Display != g.Watchdog {
			r.Display = g.Watchdog
			poke(cs.reg.changed) // the inventory says so
		}
	}
	for _, u := range uuids {
		if r := cs.reg.mem.GPUs[u]; r != nil {
			r.Check, r.CheckedFor, r.CheckedAt = text, cs.checkedFor(), cs.reg.cfg.Now()
		}
	}
	cs.reg.save()
	poke(cs.reg.kick)
}

// checkedFor is what a check made now is of. reg.mu is held.
func (cs *Checks) checkedFor() string { return cs.reg.boot + " " + cs.reg.sys.Driver }

// Due returns the GPUs that are due for a check: those that were not checked since the boot with the present
// driver, and those whose last check failed a while ago. GPUs that have a lease, that their owner uses, that are split
// into instances, or that have another defect are left out. GPUs of a model whose NVLinks were not measured lately are
// due together.
func (cs *Checks) Due() []string {
	leased, known := cs.owners.leasedNow()
	cs.reg.mu.Lock()
	defer cs.reg.mu.Unlock()
	if !known || cs.reg.blind != nil || cs.reg.sys.Driver == "" {
		return nil
	}
	var due, idle []string
	for uuid, r := range cs.reg.mem.GPUs {
		_, used := cs.owners.unleased[uuid]
		switch {
		case r.Seen != cs.reg.boot, leased[uuid], used, r.Held != "", r.GPU.MIG.Or(false),
			r.State != Healthy && r.Kind != kindCheck && !r.onlyLacksCheck(), r.proving, cs.unregistered(uuid):
		case r.CheckedFor != cs.checkedFor(), r.Check != "" && cs.reg.cfg.Now().Sub(r.CheckedAt) >= recheck:
			due = append(due, uuid)
		case r.Check == "" && r.State == Healthy:
			idle = append(idle, uuid)
		}
	}
	due = append(due, cs.unringed(idle)...)
	slices.Sort(due)
	return due
}

// unregistered reports whether a GPU is known not to compute yet, for want of its NVSwitches. reg.mu is held.
func (cs *Checks) unregistered(uuid string) bool {
	f, ok := cs.reg.fabrics[uuid]
	return ok && !f.Ready()
}

// onlyLacksCheck reports whether a suspect GPU shows nothing but a check that it has not passed.
func (r *record) onlyLacksCheck() bool {
	_, stands := r.Standing[kindCheck]
	return r.State == Suspect && stands && len(r.Standing) == 1
}

// displayProblems returns the problems of GPUs whose kernels the driver ends after some seconds, because a display uses
// them. reg.mu is held.
func (cs *Checks) displayProblems(gpus []agentapi.GPU) []agentapi.Problem {
	var out []agentapi.Problem
	for _, g := range gpus {
		if r := cs.reg.mem.GPUs[g.UUID]; r != nil && g.Display {
			seen := "nvmlDeviceGetDisplayActive"
			if r.Display {
				seen = "CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT"
			}
			out = append(out, agentapi.Problem{
				Code:     "display_watchdog",
				Severity: "warn",
				Cause: fmt.Sprintf("A display uses GPU %d, so the driver ends programs' kernels that run for some seconds: "+
					"long computations of renters fail with \"launch timed out\".", g.Index),
				Evidence: g.UUID + ", " + seen,
				Fix: "Connect the display to another GPU or to the processor's graphics, or run the machine without a desktop " +
					"(systemctl set-default multi-user.target).",
			})
		}
	}
	return out
}
