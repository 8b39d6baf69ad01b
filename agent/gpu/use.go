package gpu

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/gpu/wire"
	"github.com/musterhq/muster/internal/fault"
)

// Use is who uses a GPU's memory now.
type Use struct {
	MemUsed   int64 // bytes, without what the driver reserves
	Processes []Process
}

// Process holds a context on a GPU.
type Process struct {
	PID     int   // in the host's PID namespace
	MemUsed int64 // bytes; 0 where not told
}

// slack is how much memory of a GPU may be in use, beyond what was before, for it to count as free: drivers keep a
// little for themselves.
const slack = 512 << 20

// UseOf tells who uses a GPU's memory.
func (m *Monitor) UseOf(ctx context.Context, uuid string) (Use, error) {
	var u wire.Use
	if err := m.ask(ctx, wire.MethodUse, uuid, &u); err != nil {
		return Use{}, asFault(err)
	}
	out := Use{MemUsed: u.MemUsed}
	for _, p := range u.Processes {
		out.Processes = append(out.Processes, Process(p))
	}
	return out, nil
}

// NoteBefore remembers who uses the GPUs before a lease's workload starts on them (an owner's desktop, say), so that
// WaitClean does not wait for that. What was noted is kept across restarts.
func (m *Monitor) NoteBefore(ctx context.Context, uuids ...string) error {
	for _, uuid := range uuids {
		u, err := m.UseOf(ctx, uuid)
		if err != nil {
			return err
		}
		m.mu.Lock()
		if r := m.mem.GPUs[uuid]; r != nil {
			r.Before = &u
			m.save()
		}
		m.mu.Unlock()
	}
	return nil
}

// WaitClean returns nil once no process holds the GPUs and their memory is free, but for what was there before, else,
// when ctx ends, a Conflict that says what is left. Call it after a lease's containers are gone and before its GPUs are
// given to another.
func (m *Monitor) WaitClean(ctx context.Context, uuids ...string) error {
	var left []string
	for {
		now := m.left(ctx, uuids)
		if ctx.Err() == nil {
			left = now
		}
		if len(now) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(ctx.Err(), fault.Conflict, "GPU memory is not free: %s", strings.Join(left, "; "))
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// left says what of each GPU is not clean.
func (m *Monitor) left(ctx context.Context, uuids []string) []string {
	uses, failed := each[wire.Use](ctx, m, wire.MethodUse, uuids)
	var out []string
	for _, uuid := range uuids {
		if err := failed[uuid]; err != nil {
			out = append(out, fmt.Sprintf("%s cannot be asked: %v", uuid, err))
			continue
		}
		if why := uncleanBecause(uses[uuid], m.before(uuid)); why != "" {
			out = append(out, uuid+" "+why)
		}
	}
	return out
}

func (m *Monitor) before(uuid string) Use {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.mem.GPUs[uuid]; r != nil && r.Before != nil {
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
	case now.MemUsed > before.MemUsed+slack:
		return fmt.Sprintf("has %d MB in use, %d MB before", now.MemUsed>>20, before.MemUsed>>20)
	}
	return ""
}
