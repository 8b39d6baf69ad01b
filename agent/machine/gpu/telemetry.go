package gpu

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// Batch is samples taken together. GPUSample.AtMS is left 0: the sender knows the anchor that maps BootMS.
type Batch struct {
	BootMS  int64 // CLOCK_BOOTTIME, milliseconds
	Samples []agentapi.GPUSample
}

// Telemetry reads what the GPUs do, and notices when one is slower than it could be.
type Telemetry struct {
	reg       *registry
	diagnosis *Diagnosis
	driver    *driver
}

// Sample reads the named GPUs (none named: all). A GPU that does not answer in time is left out.
func (te *Telemetry) Sample(ctx context.Context, uuids ...string) (Batch, error) {
	uuids, err := te.orAll(ctx, uuids)
	if err != nil {
		return Batch{}, err
	}
	samples, failed := each[wire.Sample](ctx, te.driver, wire.MethodSample, uuids)
	if len(uuids) > 0 && len(samples) == 0 {
		return Batch{}, unanswered(failed)
	}
	b := Batch{BootMS: hostinfo.BootMS()}
	for _, uuid := range uuids {
		if s, ok := samples[uuid]; ok {
			b.Samples = append(b.Samples, s)
		}
	}
	return b, nil
}

// EnergyMJ reads the energy counters of the named GPUs, in millijoules since the driver was loaded. GPUs that do not
// report one are left out. A counter that went down was reset.
func (te *Telemetry) EnergyMJ(ctx context.Context, uuids ...string) (map[string]int64, error) {
	b, err := te.Sample(ctx, uuids...)
	if err != nil {
		return nil, err
	}
	energy := map[string]int64{}
	for _, s := range b.Samples {
		if s.EnergyMJ != nil {
			energy[s.GPU] = *s.EnergyMJ
		}
	}
	return energy, nil
}

// orAll returns uuids, or every GPU that the driver lists if uuids is empty.
func (te *Telemetry) orAll(ctx context.Context, uuids []string) ([]string, error) {
	if len(uuids) > 0 {
		return uuids, nil
	}
	sys, err := te.driver.system(ctx)
	for _, d := range sys.Devices {
		uuids = append(uuids, d.UUIDs()...)
	}
	return uuids, asFault(err)
}

// seeSpeed looks at how fast the named GPUs run, and queues an event about each that became degraded or no longer is.
func (te *Telemetry) seeSpeed(ctx context.Context, conditions map[string]wire.Condition) {
	samples, _ := each[wire.Sample](ctx, te.driver, wire.MethodSample, slices.Collect(maps.Keys(conditions)))
	te.reg.mu.Lock()
	defer te.reg.mu.Unlock()
	for uuid, s := range samples {
		r := te.reg.mem.GPUs[uuid]
		if r == nil {
			continue
		}
		if r.Degraded != "" && r.slow.causes == nil { // as stored before a restart: it must be quiet for as long again
			r.slow.causes = map[string]slowdown{}
			r.slow.restarted = te.reg.cfg.Now()
		}
		te.seeLink(r, s)
		c := conditions[uuid]
		for _, e := range te.reg.defects(*r, c) {
			if e.Contained {
				r.slow.report("ecc", "contained memory errors, until the next reset", te.reg.cfg.Now())
			}
		}
		r.slow.see(s, nvlinks{c.NVLinksUp, linksToSwitches(r.GPU), c.FabricHealth.Faults()}, te.reg.cfg.Now(),
			te.reg.cfg.timing.steady)
		why := r.slow.why(te.reg.cfg.timing.slow)
		if why == "" && te.reg.cfg.Now().Sub(r.slow.restarted) < te.reg.cfg.timing.steady {
			continue
		}
		if why == r.Degraded {
			continue
		}
		r.Degraded = why
		if why == "" {
			te.diagnosis.emit(r, Evidence{Kind: kindRestored})
		} else {
			te.diagnosis.emit(r, Evidence{Kind: kindDegraded, Detail: why})
		}
	}
}

// seeLink adds a look at a GPU's link, and has the inventory sent again if that changes it. reg.mu is held.
func (te *Telemetry) seeLink(r *record, s wire.Sample) {
	if r.Link.see(s, te.reg.boot) {
		te.reg.save()
		poke(te.reg.changed)
	}
}

// WatchLinks looks at the PCIe links of the named GPUs, which something makes compute meanwhile, until ctx ends.
func (te *Telemetry) WatchLinks(ctx context.Context, uuids ...string) {
	for ctx.Err() == nil {
		samples, _ := each[wire.Sample](ctx, te.driver, wire.MethodSample, uuids)
		te.reg.mu.Lock()
		for uuid, s := range samples {
			if r := te.reg.mem.GPUs[uuid]; r != nil {
				te.seeLink(r, s)
			}
		}
		te.reg.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(linkEvery):
		}
	}
}
