package gpu

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// OwnerMemory is how much of a GPU's memory the host's own processes may hold while the GPU can still be rented out:
// about what a desktop's compositor takes of a card without games.
const OwnerMemory = 256 << 20

// unnamed is how much memory may be in use without a process listed for it: older drivers count what they reserve as
// used.
const unnamed = 1 << 30

// Owners finds what the host's own programs do with the GPUs.
type Owners struct {
	reg    *registry
	driver *driver

	// reg.mu guards these.
	leased   func() map[string]bool // returns the GPUs that have a lease; nil: not set yet
	unleased map[string]owned       // GPUs without a lease that their owner uses
	shared   map[string]owned       // GPUs with a lease that their owner uses too
}

// LeasedBy sets the function that returns which GPUs have a lease, by UUID: what runs on those is not the owner's.
// Before LeasedBy is called, a Monitor that stores state takes no process for the owner's.
func (ow *Owners) LeasedBy(leased func() map[string]bool) {
	ow.reg.mu.Lock()
	ow.leased = leased
	ow.reg.mu.Unlock()
	poke(ow.reg.kick)
}

// InUse returns which of the named GPUs, which have no lease yet, the host's own processes use, and by what; GPUs that
// are free for a lease are left out. For a GPU that does not answer, the last known use counts.
func (ow *Owners) InUse(ctx context.Context, uuids ...string) map[string]string {
	uses, failed := each[wire.Use](ctx, ow.driver, wire.MethodUse, uuids)
	says := map[string]string{}
	for uuid, u := range uses {
		says[uuid] = ow.ownersUse(u)
	}
	ow.reg.mu.Lock()
	defer ow.reg.mu.Unlock()
	for uuid := range failed {
		if o := ow.unleased[uuid]; o.quit.IsZero() {
			says[uuid] = o.by
		}
	}
	for uuid, s := range says {
		if s == "" {
			delete(says, uuid)
		} else if ow.noteOwner(uuid, s) {
			poke(ow.reg.changed)
		}
	}
	for _, uuid := range uuids {
		if r := ow.reg.mem.GPUs[uuid]; r != nil && r.GPU.MIG.Or(false) {
			says[uuid] = "it is split into instances (MIG)"
		}
	}
	return says
}

// owned is a GPU that its owner uses.
type owned struct {
	by    string    // the processes, and how much of its memory they use
	quit  time.Time // end of the use; zero: it is in use
	bytes int64     // of memory, when the use was last reported
}

// see finds the owner's use of the GPUs that have no lease, and the host's own processes on those that have one.
// It is part of a look.
func (ow *Owners) see(ctx context.Context, uuids []string) {
	before, ok := ow.leasedNow()
	if !ok {
		return
	}
	ow.readShared(ctx, slices.DeleteFunc(slices.Clone(uuids), func(u string) bool { return !before[u] }))
	known := ow.reg.known()
	uuids = slices.DeleteFunc(slices.Clone(uuids), func(u string) bool { return before[u] || known[u].Held != "" })
	uses, _ := each[wire.Use](ctx, ow.driver, wire.MethodUse, uuids)
	says := map[string]string{}
	for uuid, u := range uses {
		says[uuid] = ow.ownersUse(u)
	}
	after, _ := ow.leasedNow() // a lease that began meanwhile may have been seen
	ow.reg.mu.Lock()
	defer ow.reg.mu.Unlock()
	changed := false
	for uuid, s := range says {
		if !after[uuid] {
			changed = ow.noteOwner(uuid, s) || changed
		}
	}
	if changed {
		poke(ow.reg.changed)
	}
}

func (ow *Owners) leasedNow() (leased map[string]bool, ok bool) {
	ow.reg.mu.Lock()
	f := ow.leased
	ow.reg.mu.Unlock()
	if f == nil {
		return nil, ow.reg.cfg.StateDir == ""
	}
	return f(), true
}

// noteOwner records the use of a GPU without a lease and reports whether it has changed. reg.mu is held.
func (ow *Owners) noteOwner(uuid, says string) (news bool) {
	if news = ow.note(ow.unleased, uuid, says, 0); news {
		ow.reg.log.Info("the programs outside leases that use a GPU have changed", "gpu", uuid, "use", says)
	}
	return news
}

// note records a use and reports whether it has changed. A GPU is free again after it has not been used for a while: an
// owner who restarts a game, or a desktop, is not done with it. reg.mu is held.
func (ow *Owners) note(in map[string]owned, uuid, says string, bytes int64) (news bool) {
	o, was := in[uuid]
	now := ow.reg.cfg.Now()
	switch {
	case says != "":
		if news = !was || names(o.by) != names(says); !news {
			bytes = o.bytes
		}
		in[uuid] = owned{by: says, bytes: bytes}
	case was && o.quit.IsZero():
		o.quit = now
		in[uuid] = o
	case was && now.Sub(o.quit) >= ow.reg.cfg.timing.calm:
		delete(in, uuid)
		news = true
	}
	return news
}

// names returns a use without its amount of memory, which changes all the time.
func names(says string) string { return says[:max(0, strings.LastIndex(says, ", "))] }

// ownersUse returns what uses a GPU that has no lease, and how much of its memory: "Xorg, 412 MiB"; "" if the use is
// small enough for a lease to get the GPU.
func (ow *Owners) ownersUse(u wire.Use) string {
	held, untold := int64(0), false
	for _, p := range u.Processes {
		held += p.MemUsed
		untold = untold || p.MemUsed == 0
	}
	if !u.Shared && (untold || u.MemUsed > held+unnamed) {
		held = max(held, u.MemUsed)
	}
	allowed := ow.reg.cfg.OwnerMemory
	if held <= max(allowed, 0) {
		return ""
	}
	processes := slices.Clone(u.Processes)
	slices.SortFunc(processes, func(a, b wire.Process) int {
		return cmp.Or(cmp.Compare(b.MemUsed, a.MemUsed), cmp.Compare(a.PID, b.PID))
	})
	return ow.listed(processes, held)
}

// listed returns the names of the first processes, and the memory that all of them hold: "Xorg, steam, 412 MiB".
func (ow *Owners) listed(processes []wire.Process, bytes int64) string {
	const most = 3
	var who []string
	for _, p := range processes[:min(most, len(processes))] {
		who = append(who, ow.nameOf(p.PID))
	}
	switch more := len(processes) - most; {
	case len(processes) == 0:
		who = []string{"something the driver does not name"}
	case more > 0:
		who = append(who, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%s, %d MiB", strings.Join(who, ", "), bytes>>20)
}

var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// nameOf returns the name of a process as its owner knows it, with the container that it runs in.
func (ow *Owners) nameOf(pid int) string {
	dir := filepath.Join(ow.reg.cfg.ProcFS, strconv.Itoa(pid))
	name := "process " + strconv.Itoa(pid)
	if b, err := os.ReadFile(filepath.Join(dir, "comm")); err == nil && strings.TrimSpace(string(b)) != "" {
		name = strings.ToValidUTF8(strings.ReplaceAll(strings.TrimSpace(string(b)), ",", ""), "?")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "cgroup")); err == nil {
		if id := containerID.FindString(string(b)); id != "" {
			name += " in container " + id[:12]
		}
	}
	return name
}

// inUse returns the problems of GPUs that their owner uses.
func inUse(gpus []agentapi.GPU) []agentapi.Problem {
	var out []agentapi.Problem
	for _, g := range gpus {
		if g.InUse != "" {
			out = append(out, agentapi.Problem{
				Code:     agentapi.ProblemInUse,
				Severity: "warn",
				Cause:    fmt.Sprintf("GPU %d is in use on the host itself (%s): it is not offered.", g.Index, g.InUse),
				Evidence: g.UUID,
				Fix: "It is offered again half a minute after that has ended. A desktop that needs more than it may: start " +
					"the agent with a higher --owner-vram-mb.",
			})
		}
	}
	return out
}
