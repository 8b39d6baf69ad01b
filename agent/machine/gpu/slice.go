package gpu

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// isSlice reports whether a UUID is that of a MIG device.
func isSlice(uuid string) bool { return strings.HasPrefix(uuid, "MIG-") }

// withoutSlices returns the GPUs of a sorted list, which slices follow.
func withoutSlices(gpus []agentapi.GPU) []agentapi.GPU {
	return slices.DeleteFunc(slices.Clone(gpus), func(g agentapi.GPU) bool { return g.KindOf() == agentapi.KindSlice })
}

// splitProblems returns what keeps a GPU in MIG mode, or parts of it, from being rented. With a layout of whole GPU
// instances there is no problem: its slices are rented.
func splitProblems(g agentapi.GPU, sys wire.System) []agentapi.Problem {
	if g.KindOf() != agentapi.KindGPU || !g.MIG.Or(false) {
		return nil
	}
	i := slices.IndexFunc(sys.Devices, func(d wire.Device) bool { return d.UUID == g.UUID })
	if i < 0 {
		return nil
	}
	switch d := sys.Devices[i]; {
	case d.Shared > 0:
		return []agentapi.Problem{{
			Code:     "mig_shared",
			Severity: "warn",
			Cause: fmt.Sprintf("%d MIG devices of GPU %d share a GPU instance with others: they are not offered.",
				d.Shared, g.Index),
			Evidence: g.UUID,
			Fix:      "Give each GPU instance one compute instance of its full size (nvidia-smi mig -cgi … -C).",
		}}
	case len(d.Slices) == 0:
		return []agentapi.Problem{{
			Code:     "mig",
			Severity: "warn",
			Cause:    fmt.Sprintf("GPU %d is in MIG mode and has no MIG device: nothing of it can be rented.", g.Index),
			Evidence: g.UUID,
			Fix: fmt.Sprintf("Lay it out, for example: nvidia-smi mig -i %d -cgi 2g.20gb,2g.20gb -C. To rent it whole: "+
				"nvidia-smi -i %d -mig 0.", g.Index, g.Index),
		}}
	}
	return nil
}

// remaker knows the slices that an operator makes of GPUs, and recreates them after each lease.
type remaker struct {
	reg    *registry
	driver *driver
	owners *Owners
}

// replaced reports whether a record is of a slice that the driver does not list now: an operator has made another
// layout. reg.mu is held.
func (rm *remaker) replaced(r *record, sys wire.System) bool {
	return r.Instance != nil && !r.Remaking && rm.reg.blind == nil &&
		!slices.ContainsFunc(sys.Devices, func(d wire.Device) bool { return slices.Contains(d.Slices, r.GPU.UUID) })
}

// forget removes the records of slices that are not there any more: their operator has made another layout,
// which is no defect. A slice that is being recreated, one with a lease, and the slices of a GPU that the driver does
// not list stay. reg.mu is held.
func (rm *remaker) forget(present map[string]bool) {
	leased := map[string]bool{}
	if rm.owners.leased != nil {
		f := rm.owners.leased
		rm.reg.mu.Unlock()
		leased = f()
		rm.reg.mu.Lock()
	}
	for uuid, r := range rm.reg.mem.GPUs {
		if r.Instance != nil && !r.Remaking && !present[uuid] && present[r.GPU.Parent] && !leased[uuid] {
			delete(rm.reg.mem.GPUs, uuid)
			delete(rm.owners.unleased, uuid)
			rm.reg.save()
			poke(rm.reg.changed)
		}
	}
}

// remake destroys the slices among the named devices and recreates them, so that nothing of a lease is left in their
// memory, and no setting. The layout stays as it is.
func (rm *remaker) remake(ctx context.Context, uuids []string) error {
	for _, uuid := range uuids {
		if !isSlice(uuid) {
			continue
		}
		rm.reg.mu.Lock()
		r := rm.reg.mem.GPUs[uuid]
		if r == nil || r.Instance == nil {
			rm.reg.mu.Unlock()
			return fault.New(fault.Conflict, "%s is not known as a slice", uuid)
		}
		r.Remaking = true // stored first: an agent that ends in the middle makes it when it starts again
		rm.reg.save()
		rm.reg.mu.Unlock()
		rm.reg.looking.Lock()
		err := rm.finish(ctx, uuid)
		rm.reg.looking.Unlock()
		if err != nil {
			return fault.Wrap(err, fault.Conflict, "%s cannot be recreated: %v", uuid, err)
		}
	}
	return nil
}

// finishRemaking makes the slices that an agent which has ended left destroyed. It is part of a look.
func (rm *remaker) finishRemaking(ctx context.Context) {
	for uuid, r := range rm.reg.known() {
		if !r.Remaking {
			continue
		}
		if err := rm.finish(ctx, uuid); err != nil && ctx.Err() == nil {
			rm.reg.log.Warn("a slice cannot be recreated", "gpu", uuid, "err", err)
		}
	}
}

// finish recreates a slice, unless that is done. Its record moves to the UUID that it has then. reg.looking is held.
func (rm *remaker) finish(ctx context.Context, uuid string) error {
	rm.reg.mu.Lock()
	r := rm.reg.mem.GPUs[uuid]
	if r == nil || !r.Remaking {
		rm.reg.mu.Unlock()
		return nil
	}
	parent, like := r.GPU.Parent, *r.Instance
	rm.reg.mu.Unlock()
	var made wire.Instance
	q := wire.Request{Method: wire.MethodRemake, GPU: parent, Like: &like}
	if err := rm.driver.probe.request(ctx, q, &made); err != nil {
		return err
	}
	rm.reg.mu.Lock()
	defer rm.reg.mu.Unlock()
	r.Remaking, r.Instance = false, &made
	r.CheckedFor = ""    // a new device: it must prove again that it computes
	poke(rm.reg.changed) // it has other device nodes, or none yet: the inventory looks at them
	if made.UUID != uuid {
		rm.reg.log.Info("a slice has another UUID since it was recreated", "gpu", uuid, "now", made.UUID)
		delete(rm.reg.mem.GPUs, uuid)
		r.GPU.UUID, r.GPU.AttachName = made.UUID, "nvidia.com/gpu="+made.UUID
		rm.reg.mem.GPUs[made.UUID] = r
		rm.driver.probe.seenAt(made.UUID, r.GPU.PCIBus)
	}
	rm.reg.save()
	return nil
}
