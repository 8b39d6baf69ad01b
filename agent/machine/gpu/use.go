package gpu

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/fault"
)

// Use is the present use of a GPU's memory.
type Use struct {
	MemUsed   int64 // bytes, without what the driver reserves
	Shared    bool  // the memory is also the system's: MemUsed does not show who uses it
	Processes []Process
}

// Process is a process that holds a context on a GPU.
type Process struct {
	PID     int   // in the host's PID namespace
	MemUsed int64 // bytes; 0 if not reported
}

// slack is how much memory of a GPU may be in use, beyond the use before the lease, while the GPU counts as free:
// drivers keep a little for themselves.
const slack = 512 << 20

// Leases notes how GPUs are used before a lease, and waits until they are clean after it.
type Leases struct {
	reg     *registry
	driver  *driver
	owners  *Owners
	remaker *remaker
}

// UseOf returns the present use of a GPU's memory.
func (ls *Leases) UseOf(ctx context.Context, uuid string) (Use, error) {
	var u wire.Use
	if err := ls.driver.call(ctx, wire.MethodUse, uuid, &u); err != nil {
		return Use{}, asFault(err)
	}
	out := Use{MemUsed: u.MemUsed, Shared: u.Shared}
	for _, p := range u.Processes {
		out.Processes = append(out.Processes, Process(p))
	}
	return out, nil
}

// NoteBefore records the use of the GPUs before a lease's workload starts on them (by an owner's desktop, for example),
// so that WaitClean does not wait for it. The record survives restarts.
func (ls *Leases) NoteBefore(ctx context.Context, uuids ...string) error {
	for _, uuid := range uuids {
		u, err := ls.UseOf(ctx, uuid)
		if err != nil {
			return err
		}
		ls.reg.mu.Lock()
		if r := ls.reg.mem.GPUs[uuid]; r != nil {
			r.Before, r.AppBlamed = &u, false
			delete(ls.owners.shared, uuid) // belongs to the previous lease
			ls.reg.save()
		}
		ls.reg.mu.Unlock()
	}
	return nil
}

// WaitClean returns nil once no process holds the GPUs and their memory is free, apart from the use before the lease.
// If ctx ends first, it returns a Conflict that names what is left, and the GPUs that are not clean are suspect until a
// look finds them clean. Slices are then destroyed and recreated. Call it after a lease's containers are gone and
// before its GPUs are given to another lease.
func (ls *Leases) WaitClean(ctx context.Context, uuids ...string) error {
	var left []string
	var held map[string]string
	for {
		now, unclean := ls.left(ctx, uuids)
		if ctx.Err() == nil {
			left, held = now, unclean
		}
		if len(now) == 0 {
			return ls.remaker.remake(ctx, uuids)
		}
		select {
		case <-ctx.Done():
			ls.hold(held)
			return fault.Wrap(ctx.Err(), fault.Conflict, "GPU memory is not free: %s", strings.Join(left, "; "))
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// left returns what is not clean, for all GPUs, and by UUID for the GPUs that answered.
func (ls *Leases) left(ctx context.Context, uuids []string) (all []string, unclean map[string]string) {
	uses, failed := each[wire.Use](ctx, ls.driver, wire.MethodUse, uuids)
	unclean = map[string]string{}
	for _, uuid := range uuids {
		if err := failed[uuid]; err != nil {
			all = append(all, fmt.Sprintf("%s cannot be asked: %v", uuid, err))
			continue
		}
		if why := uncleanBecause(ls.withoutHosts(uses[uuid]), ls.before(uuid)); why != "" {
			all = append(all, uuid+" "+why)
			unclean[uuid] = why
		}
	}
	return all, unclean
}

// hold marks GPUs whose memory is not free after a lease, which makes them suspect at the next look; each look checks
// them again.
func (ls *Leases) hold(unclean map[string]string) {
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	for uuid, why := range unclean {
		if r := ls.reg.mem.GPUs[uuid]; r != nil && r.Held == "" {
			r.Held = "after a lease has ended it " + why
			ls.reg.save()
			poke(ls.reg.kick)
		}
	}
}

// letGo clears the mark of GPUs whose memory is free again. It is part of a look.
func (ls *Leases) letGo(ctx context.Context) {
	var held []string
	for uuid, r := range ls.reg.known() {
		if r.Held != "" {
			held = append(held, uuid)
		}
	}
	if len(held) == 0 {
		return
	}
	uses, _ := each[wire.Use](ctx, ls.driver, wire.MethodUse, held)
	for uuid, use := range uses {
		if uncleanBecause(ls.withoutHosts(use), ls.before(uuid)) != "" {
			continue
		}
		ls.reg.mu.Lock()
		if r := ls.reg.mem.GPUs[uuid]; r != nil {
			r.Held = ""
			ls.reg.save()
		}
		ls.reg.mu.Unlock()
	}
}

// withoutHosts returns a use without the host's own programs, which may have started since: those that are in no
// container, such as a desktop's login screen. Nothing that a lease has run can leave its container's control group.
func (ls *Leases) withoutHosts(u wire.Use) wire.Use {
	out := wire.Use{MemUsed: u.MemUsed, Shared: u.Shared}
	for _, p := range u.Processes {
		if ls.owners.outside(p.PID) {
			out.MemUsed -= p.MemUsed
		} else {
			out.Processes = append(out.Processes, p)
		}
	}
	return out
}

func (ls *Leases) before(uuid string) Use {
	ls.reg.mu.Lock()
	defer ls.reg.mu.Unlock()
	if r := ls.reg.mem.GPUs[uuid]; r != nil && r.Before != nil {
		return *r.Before
	}
	return Use{}
}

func uncleanBecause(now wire.Use, before Use) string {
	var pids []int
	for _, p := range now.Processes {
		if !slices.ContainsFunc(before.Processes, func(b Process) bool { return b.PID == p.PID }) {
			pids = append(pids, p.PID)
		}
	}
	switch {
	case len(pids) > 0:
		return fmt.Sprintf("is held by processes %v", pids)
	case now.Shared: // the kernel reclaims what a lease leaves there, such as cached files, when needed
	case now.MemUsed > before.MemUsed+slack:
		return fmt.Sprintf("has %d MB in use, %d MB before", now.MemUsed>>20, before.MemUsed>>20)
	}
	return ""
}
