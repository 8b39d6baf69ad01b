package gpu

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// Health is the health of one GPU.
type Health struct {
	State  State
	Reason string // for people; "" when healthy
}

// Health returns the present health by UUID, of every GPU seen since the host booted. While the driver does not answer,
// no GPU is healthy.
func (m *Monitor) Health() map[string]Health {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]Health{}
	for uuid, r := range m.mem.GPUs {
		if r.Seen == m.boot {
			out[uuid] = m.healthOf(r)
		}
	}
	return out
}

// healthOf returns the health in a record for callers. m.mu is held.
func (m *Monitor) healthOf(r *record) Health {
	if r.State == Healthy && m.blind != nil {
		return Health{Suspect, m.maker.driver() + " does not answer: " + m.blind.Error()}
	}
	return Health{r.State, r.Reason}
}

// Pending returns the health events that are not acknowledged yet, oldest first. They survive restarts of the agent.
func (m *Monitor) Pending() []agentapi.HealthEvent {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.mem.Outbox)
}

// Ack removes the events up to and including seq: the server has committed them (SyncReply.HealthAck).
func (m *Monitor) Ack(seq uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := len(m.mem.Outbox)
	m.mem.Outbox = slices.DeleteFunc(m.mem.Outbox, func(e agentapi.HealthEvent) bool { return e.Seq <= seq })
	if len(m.mem.Outbox) == before {
		return nil
	}
	return m.store.save(m.mem)
}

// Changed returns a channel that receives a value when health has changed, so that the agent syncs at once. Sends never
// block; at most one value waits.
func (m *Monitor) Changed() <-chan struct{} { return m.changed }

// watch looks at every GPU at intervals, and at once when an event arrives.
func (m *Monitor) watch(ctx context.Context) {
	var log *os.File
	defer func() {
		if log != nil {
			log.Close()
		}
	}()
	for ctx.Err() == nil {
		_, err := m.look(ctx)
		if log == nil && (err == nil || m.cfg.KernelLog != "") {
			log = m.openKernelLog()
		}
		select {
		case <-ctx.Done():
		case <-m.kick:
		case <-time.After(m.cfg.timing.watch):
		}
	}
}

// look gets the driver's list and every GPU's condition. Looks are serialised: the result of an older look must not be
// applied after that of a newer one.
func (m *Monitor) look(ctx context.Context) (wire.System, error) {
	m.looking.Lock()
	defer m.looking.Unlock()
	sys, err := m.system(ctx)
	if err != nil {
		return sys, err
	}
	present := map[string]bool{}
	var fresh []string
	m.mu.Lock()
	for _, d := range sys.Devices {
		for _, uuid := range d.UUIDs() {
			present[uuid] = true
			if r := m.mem.GPUs[uuid]; r == nil || r.Seen != m.boot {
				fresh = append(fresh, uuid)
			}
		}
	}
	m.forgetSlices(present)
	m.mu.Unlock()
	m.finishRemaking(ctx)
	m.describe(ctx, fresh)
	m.letGo(ctx)
	bus := m.pciDevices()
	// GPUs of this boot that the driver does not list are called too: another GPU may have made the list fail.
	known, asked := m.known(), maps.Clone(present)
	for uuid := range known {
		asked[uuid] = true
	}
	conditions, failed := each[wire.Condition](ctx, m, wire.MethodCondition, slices.Collect(maps.Keys(asked)))
	m.weighUnknown(conditions)
	for uuid, r := range known {
		standing, answered := m.standing(r, conditions, failed, present, bus)
		if answered {
			m.examine(uuid, standing, false)
		}
	}
	m.noteRecovery(conditions)
	answered := slices.Collect(maps.Keys(conditions))
	m.seeSpeed(ctx, conditions)
	m.keepPower(ctx, slices.DeleteFunc(slices.Clone(answered), isSlice))
	m.seeOwners(ctx, slices.DeleteFunc(slices.Clone(answered), func(u string) bool { return known[u].GPU.MIG.Or(false) }))
	return sys, nil
}

// lookAfterReset looks at one GPU that was just reset. m.looking is held.
func (m *Monitor) lookAfterReset(ctx context.Context, uuid string) error {
	sys, err := m.system(ctx)
	if err != nil {
		return err
	}
	present := map[string]bool{}
	for _, d := range sys.Devices {
		present[d.UUID] = true
	}
	if !present[uuid] {
		return errors.New("the driver does not list it")
	}
	var c wire.Condition
	if err := m.probe.call(ctx, wire.MethodCondition, uuid, &c); err != nil {
		return err
	}
	one := map[string]wire.Condition{uuid: c}
	m.weighUnknown(one)
	c = one[uuid]
	m.mu.Lock()
	if r := m.mem.GPUs[uuid]; r != nil { // a check finds out whether it computes again
		r.Check, r.CheckedFor = "", ""
	}
	m.mu.Unlock()
	m.examine(uuid, ConditionEvidence(c), true)
	return nil
}

// standing collects the evidence against a GPU at this look. answered is false if nothing was learnt: the GPU's call
// hung or the probe ended, which is reported elsewhere.
func (m *Monitor) standing(r record, conditions map[string]wire.Condition, failed map[string]error,
	present map[string]bool, bus pciDevices) (out []Evidence, answered bool) {
	uuid := r.GPU.UUID
	if bus.known && !bus.has(r.GPU.PCIBus) {
		out = append(out, Evidence{
			Kind:   kindOffBus,
			Weight: Quarantined,
			Detail: "its PCI device " + r.GPU.PCIBus + " is gone",
		})
	}
	if r.Remaking {
		return append(out, Evidence{Kind: kindMemory, Weight: Suspect,
			Detail: "after a lease has ended it could not be recreated"}), true
	}
	if r.Held != "" {
		out = append(out, Evidence{Kind: kindMemory, Weight: Suspect, Detail: r.Held})
	}
	if r.Check != "" {
		out = append(out, Evidence{Kind: kindCheck, Weight: Suspect, Detail: r.Check})
	}
	if c, ok := conditions[uuid]; ok {
		if c.Odd != nil && c.Odd.Code == wire.CodeUnknown && m.waking() {
			c.Odd = nil
			out = append(out, ConditionEvidence(c)...)
			return out, len(out) > 0
		}
		return append(out, ConditionEvidence(c)...), true
	}
	if !present[uuid] {
		return append(out, Evidence{
			Kind:   kindLost,
			Weight: Quarantined,
			Detail: "the driver does not list it any more",
		}), true
	}
	if e, ok := m.callEvidence(failed[uuid]); ok && e.Kind != kindHang {
		return append(out, e), true
	}
	return out, len(out) > 0
}

// known returns copies of the records of GPUs seen since boot.
func (m *Monitor) known() map[string]record {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]record{}
	for uuid, r := range m.mem.GPUs {
		if r.Seen == m.boot {
			out[uuid] = *r
		}
	}
	return out
}

// examine applies a whole look to a GPU.
func (m *Monitor) examine(uuid string, standing []Evidence, reset bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.mem.GPUs[uuid]
	if r == nil {
		return
	}
	standingBefore := r.Standing
	next, news, recovered := r.Look(standing, reset, m.boot, m.cfg.Now(), m.cfg.timing.recovers)
	r.Verdict = next
	for _, e := range news {
		m.emit(r, e)
	}
	if recovered {
		m.emit(r, Evidence{Kind: kindRecovered})
	}
	if len(news) == 0 && !recovered && !maps.Equal(standingBefore, next.Standing) {
		m.save()
	}
}

// accuse applies one piece of evidence to a GPU.
func (m *Monitor) accuse(uuid string, e Evidence) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.mem.GPUs[uuid]
	if r == nil || e.App && r.AppBlamed {
		return
	}
	next, news := r.Accuse(e, m.boot, m.cfg.Now())
	changed := !next.Last.Equal(r.Last)
	r.Verdict, r.AppBlamed = next, r.AppBlamed || e.App
	if news {
		m.emit(r, e)
	} else if changed {
		m.save()
	}
}

// emit queues an event about r's present state, stores it and notifies the receiver of Changed. m.mu is held.
func (m *Monitor) emit(r *record, e Evidence) {
	m.mem.Seq++
	m.mem.Outbox = append(m.mem.Outbox, agentapi.HealthEvent{Seq: m.mem.Seq, GPU: r.GPU.UUID, Kind: e.Kind, Xid: e.Xid,
		Vendor: r.GPU.VendorOf(), Code: e.code(),
		State: string(r.State), Detail: e.Detail, BootID: m.boot, BootMS: hostinfo.BootMS()})
	if over := len(m.mem.Outbox) - maxOutbox; over > 0 {
		m.mem.Outbox = m.mem.Outbox[over:]
	}
	m.log.Warn("GPU health", "gpu", r.GPU.UUID, "kind", e.Kind, "xid", e.Xid, "state", r.State, "detail", e.Detail)
	m.save()
	poke(m.changed)
}

// save stores what is known. A disk that fails must not end the health checks. m.mu is held.
func (m *Monitor) save() {
	if err := m.store.save(m.mem); err != nil {
		m.log.Error("GPU health is not kept", "err", err)
	}
}

// listen handles the probe's events.
func (m *Monitor) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-m.probe.events:
			if e.GPU != "" && e.Xid != 0 {
				for _, uuid := range m.concerned(e.GPU, e.Instance) {
					m.accuse(uuid, XidEvidence(e.Xid))
				}
			}
			poke(m.kick) // a look finds which GPU was lost, and what an Xid left behind
		}
	}
}

// openKernelLog starts reading the kernel's log; it returns nil if the log cannot be read. The log of a machine with
// simulated GPUs is about other hardware and is not read.
func (m *Monitor) openKernelLog() *os.File {
	path := m.cfg.KernelLog
	if path == "" {
		m.mu.Lock()
		simulated, gpus := m.sys.Simulated, len(m.sys.Devices)
		m.mu.Unlock()
		if simulated || gpus == 0 {
			return nil
		}
		path = kernelLog
	}
	f, err := os.Open(path)
	if err != nil {
		m.log.Info("the kernel's log cannot be read: a GPU that falls off the bus in silence is noticed later", "err", err)
		return nil
	}
	m.mu.Lock()
	if m.mem.Log.BootID == "" { // first start on this host: earlier events do not count
		_, _ = f.Seek(0, io.SeekEnd)
	}
	if m.mem.Log.BootID != m.boot {
		m.mem.Log.BootID, m.mem.Log.Seq = m.boot, 0
		m.save()
	}
	m.mu.Unlock()
	m.done.Go(func() {
		err := readKernelLog(f, m.applyKernelLine)
		if err != nil && !errors.Is(err, os.ErrClosed) && !strings.Contains(err.Error(), "file already closed") {
			m.log.Warn("the kernel's log ended", "err", err)
		}
	})
	return f
}

// applyKernelLine applies a line of the kernel's log once, however often the log is read in a boot.
func (m *Monitor) applyKernelLine(l kernelLine) {
	m.mu.Lock()
	seen := l.Seq <= m.mem.Log.Seq
	var about []string
	for id, r := range m.mem.GPUs {
		_, switched := m.fabrics[id]
		here := samePCI(r.GPU.PCIBus, l.PCI) && (l.Instance == nil || r.Instance != nil && r.Instance.ID == *l.Instance)
		if r.Seen == m.boot && (l.Fabric && switched || !l.Fabric && here) {
			about = append(about, id)
		}
	}
	m.mem.Log.Seq = max(m.mem.Log.Seq, l.Seq)
	m.mu.Unlock()
	if seen || len(about) == 0 {
		return
	}
	for _, uuid := range about {
		m.accuse(uuid, l.Evidence)
	}
	poke(m.kick)
}
