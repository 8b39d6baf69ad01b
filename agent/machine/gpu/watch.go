package gpu

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// watcher looks at all GPUs at intervals, and follows the probe's events and the kernel's log.
type watcher struct {
	reg       *registry
	diagnosis *Diagnosis
	driver    *driver
	telemetry *Telemetry
	owners    *Owners
	power     *powerKeeper
	remaker   *remaker
	leases    *Leases
	done      sync.WaitGroup
	logged    bool // the kernel's log is read; reg.mu guards it
}

// watch looks at every GPU at intervals, and at once when an event arrives.
func (wa *watcher) watch(ctx context.Context) {
	var log *os.File
	defer func() {
		if log != nil {
			log.Close()
		}
	}()
	for ctx.Err() == nil {
		_, err := wa.look(ctx)
		if log == nil && (err == nil || wa.reg.cfg.KernelLog != "") {
			log = wa.openKernelLog()
		}
		select {
		case <-ctx.Done():
		case <-wa.reg.kick:
		case <-time.After(wa.reg.cfg.timing.watch):
		}
	}
}

// look gets the driver's list and every GPU's condition. Looks are serialised: the result of an older look must not be
// applied after that of a newer one.
func (wa *watcher) look(ctx context.Context) (wire.System, error) {
	wa.reg.looking.Lock()
	defer wa.reg.looking.Unlock()
	sys, err := wa.driver.system(ctx)
	if err != nil {
		return sys, err
	}
	present := map[string]bool{}
	var fresh []string
	wa.reg.mu.Lock()
	for _, d := range sys.Devices {
		for _, uuid := range d.UUIDs() {
			present[uuid] = true
			if r := wa.reg.mem.GPUs[uuid]; r == nil || r.Seen != wa.reg.boot {
				fresh = append(fresh, uuid)
			}
		}
	}
	wa.remaker.forget(present)
	wa.reg.mu.Unlock()
	wa.remaker.finishRemaking(ctx)
	wa.reg.restorePersistence(ctx)
	wa.describe(ctx, fresh)
	wa.leases.letGo(ctx)
	bus := wa.pciDevices()
	// GPUs of this boot that the driver does not list are called too: another GPU may have made the list fail.
	known, asked := wa.reg.known(), maps.Clone(present)
	for uuid := range known {
		asked[uuid] = true
	}
	conditions, failed := each[wire.Condition](ctx, wa.driver, wire.MethodCondition, slices.Collect(maps.Keys(asked)))
	wa.driver.weighUnknown(conditions)
	wa.reg.seeFabrics(conditions)
	for uuid, r := range known {
		standing, answered := wa.standing(r, conditions, failed, present, bus)
		if answered && !r.proving {
			wa.diagnosis.examine(uuid, standing, false)
		}
	}
	wa.diagnosis.noteRecovery(conditions)
	answered := slices.Collect(maps.Keys(conditions))
	wa.telemetry.seeSpeed(ctx, conditions)
	wa.power.keep(ctx, slices.DeleteFunc(slices.Clone(answered), isSlice))
	wa.owners.see(ctx, slices.DeleteFunc(slices.Clone(answered), func(u string) bool {
		return known[u].GPU.MIG.Or(false)
	}))
	return sys, nil
}

// conditionOf returns what one GPU reports of its defects. reg.looking is held.
func (wa *watcher) conditionOf(ctx context.Context, uuid string) (wire.Condition, error) {
	var c wire.Condition
	sys, err := wa.driver.system(ctx)
	if err != nil {
		return c, err
	}
	if !slices.ContainsFunc(sys.Devices, func(d wire.Device) bool { return d.UUID == uuid }) {
		return c, errors.New("the driver does not list it")
	}
	if err := wa.driver.probe.call(ctx, wire.MethodCondition, uuid, &c); err != nil {
		return c, err
	}
	one := map[string]wire.Condition{uuid: c}
	wa.driver.weighUnknown(one)
	return one[uuid], nil
}

// standing collects the evidence against a GPU at this look. answered is false if nothing was learnt: the GPU's call
// hung or the probe ended, which is reported elsewhere.
func (wa *watcher) standing(r record, conditions map[string]wire.Condition, failed map[string]error,
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
		return append(out, Evidence{Kind: kindMemory, Weight: Suspect, App: true,
			Detail: "after a lease has ended it could not be recreated"}), true
	}
	if r.Held != "" {
		out = append(out, Evidence{Kind: kindMemory, Weight: Suspect, App: true, Detail: r.Held})
	}
	if r.Check != "" {
		out = append(out, Evidence{Kind: kindCheck, Weight: Suspect, Detail: r.Check})
	}
	wa.reg.mu.Lock()
	if off, alone := unregistered(wa.reg.fabrics); alone {
		if f, ok := off[uuid]; ok {
			out = append(out, fabricEvidence(f))
		}
	}
	wa.reg.mu.Unlock()
	if c, ok := conditions[uuid]; ok {
		if c.Odd != nil && c.Odd.Code == wire.CodeUnknown && wa.driver.waking() {
			c.Odd = nil
			out = append(out, wa.reg.defects(r, c)...)
			return out, len(out) > 0
		}
		return append(out, wa.reg.defects(r, c)...), true
	}
	if !present[uuid] {
		return append(out, Evidence{
			Kind:   kindLost,
			Weight: Quarantined,
			Detail: "the driver does not list it any more",
		}), true
	}
	if e, ok := wa.driver.callEvidence(failed[uuid]); ok && e.Kind != kindHang {
		return append(out, e), true
	}
	return out, len(out) > 0
}

// defects returns the evidence in a GPU's report of its defects. A contained one keeps new leases off a GPU that
// can be reset, until that is done.
func (reg *registry) defects(r record, c wire.Condition) []Evidence {
	out := ConditionEvidence(c)
	for i := range out {
		out[i].Contained = out[i].Contained && !reg.resettable(r)
	}
	return out
}

// listen handles the probe's events.
func (wa *watcher) listen(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-wa.driver.probe.events:
			if e.GPU != "" && e.Xid != 0 && !wa.logHas(e.Xid) {
				for _, uuid := range wa.diagnosis.concerned(e.GPU, e.Instance) {
					wa.diagnosis.accuse(uuid, XidEvidence(e.Xid))
				}
			}
			poke(wa.reg.kick) // a look finds which GPU was lost, and what an Xid left behind
		}
	}
}

// logHas reports whether the kernel's log says more about an Xid than its event does, and is read: the event is no
// evidence then.
func (wa *watcher) logHas(xid int) bool {
	wa.reg.mu.Lock()
	defer wa.reg.mu.Unlock()
	return wa.logged && xids[xid].Bucket == bucketNVLink5
}

// openKernelLog starts reading the kernel's log; it returns nil if the log cannot be read. The log of a machine with
// simulated GPUs is about other hardware and is not read.
func (wa *watcher) openKernelLog() *os.File {
	path := wa.reg.cfg.KernelLog
	if path == "" {
		wa.reg.mu.Lock()
		simulated, gpus := wa.reg.sys.Simulated, len(wa.reg.sys.Devices)
		wa.reg.mu.Unlock()
		if simulated || gpus == 0 {
			return nil
		}
		path = kernelLog
	}
	f, err := os.Open(path)
	if err != nil {
		wa.reg.log.Info("the kernel's log cannot be read: a GPU that falls off the bus in silence is noticed later",
			"err", err)
		return nil
	}
	wa.reg.mu.Lock()
	if wa.reg.mem.Log.BootID == "" { // first start on this host: earlier events do not count
		_, _ = f.Seek(0, io.SeekEnd)
	}
	if wa.reg.mem.Log.BootID != wa.reg.boot {
		wa.reg.mem.Log.BootID, wa.reg.mem.Log.Seq = wa.reg.boot, 0
		wa.reg.save()
	}
	wa.logged = true
	wa.reg.mu.Unlock()
	wa.done.Go(func() {
		err := readKernelLog(f, wa.applyKernelLine)
		wa.reg.mu.Lock()
		wa.logged = false
		wa.reg.mu.Unlock()
		if err != nil && !errors.Is(err, os.ErrClosed) && !strings.Contains(err.Error(), "file already closed") {
			wa.reg.log.Warn("the kernel's log ended", "err", err)
		}
	})
	return f
}

// applyKernelLine applies a line of the kernel's log once, however often the log is read in a boot.
func (wa *watcher) applyKernelLine(l kernelLine) {
	wa.reg.mu.Lock()
	seen := l.Seq <= wa.reg.mem.Log.Seq
	var about []string
	for id, r := range wa.reg.mem.GPUs {
		_, switched := wa.reg.fabrics[id]
		here := samePCI(r.GPU.PCIBus, l.PCI) && (l.Instance == nil || r.Instance != nil && r.Instance.ID == *l.Instance)
		if r.Seen == wa.reg.boot && (l.Fabric && switched || !l.Fabric && here) {
			about = append(about, id)
		}
	}
	wa.reg.mem.Log.Seq = max(wa.reg.mem.Log.Seq, l.Seq)
	wa.reg.mu.Unlock()
	if seen || len(about) == 0 {
		return
	}
	for _, uuid := range about {
		wa.diagnosis.accuse(uuid, l.Evidence)
	}
	poke(wa.reg.kick)
}

// describe stores the descriptions of the GPUs that the driver lists. A GPU seen for the first time is healthy until
// there is evidence against it.
func (wa *watcher) describe(ctx context.Context, uuids []string) {
	described, _ := each[wire.Description](ctx, wa.driver, wire.MethodDescribe, uuids)
	wa.reg.mu.Lock()
	defer wa.reg.mu.Unlock()
	fresh := false
	for uuid, d := range described {
		g := d.GPU
		if g.VRAMMB == 0 { // the GPU uses the host's memory
			g.VRAMMB = systemMemoryMB(wa.reg.cfg.ProcFS)
		}
		if d.Fabric != nil {
			wa.reg.noteFabric(uuid, *d.Fabric)
		} else {
			delete(wa.reg.fabrics, uuid)
		}
		r := wa.reg.mem.GPUs[uuid]
		if r == nil {
			r = &record{Verdict: Verdict{State: Healthy, Since: wa.reg.cfg.Now(), BootID: wa.reg.boot}}
			wa.reg.mem.GPUs[uuid] = r
		}
		fresh = fresh || r.Seen != wa.reg.boot
		r.GPU, r.Seen, r.Instance, r.Coherent = g, wa.reg.boot, d.Instance, d.Coherent
	}
	if fresh {
		wa.reg.save()
		poke(wa.reg.changed)
	}
}
