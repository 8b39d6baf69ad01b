package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
)

// metering is what the journal is given of each run: when its command began, ticks while it runs, and when it ended.
type metering struct {
	journal *journal.Journal
	engine  *container.Engine
	gpus    GPUTelemetry
	runs    *runs
	tick    time.Duration // time between ticks
	bootMS  func() int64  // CLOCK_BOOTTIME
	now     func() time.Time
	log     *slog.Logger
}

// run writes ticks of every running workload into the journal.
func (m *metering) run(ctx context.Context) {
	for pause(ctx, m.tick, nil) {
		if err := m.ticks(ctx); err != nil && ctx.Err() == nil {
			m.log.Error("usage could not be noted", "err", err)
		}
	}
}

// ticks writes ticks for the workloads that Docker lists as running, and for the runs that are done and keep their
// place. A workload that Docker does not list gets no tick now; if it turns out to have run on, the next tick covers
// the time.
func (m *metering) ticks(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	boot := m.bootMS() // read before the list: a tick never claims more than was observed
	started, waiting := map[agentapi.LeaseRef][]string{}, map[agentapi.LeaseRef][]string{}
	m.runs.mu.Lock()
	for r := range m.runs.all() {
		switch o := r.rec.Outcome; {
		case !r.rec.Started || r.rec.Gone:
		case o.keepsPlace() && !r.dismissed:
			waiting[r.ref] = r.rec.Spec.GPUs
		case o == nil || o.ExitCode == nil:
			started[r.ref] = r.rec.Spec.GPUs
		}
	}
	m.runs.mu.Unlock()
	var ticks []journal.Tick
	tick := func(ref agentapi.LeaseRef, gpus []string) {
		counters, err := m.gpus.EnergyMJ(ctx, gpus...)
		if err != nil {
			m.log.Debug("energy is not known", "lease", ref, "err", err)
		}
		ticks = append(ticks, journal.Tick{LeaseRef: ref, BootMS: boot, Counters: counters})
	}
	for ref, gpus := range waiting {
		tick(ref, gpus)
	}
	if len(started) > 0 {
		list, err := m.engine.List(ctx)
		if err != nil {
			return err
		}
		for _, c := range list {
			if gpus, ok := started[c.Ref]; ok && c.Role == container.Work && c.State == container.Running {
				tick(c.Ref, gpus)
			}
		}
	}
	if len(ticks) == 0 {
		return nil
	}
	return m.journal.Tick(ticks)
}

// start begins the metering at the moment the command began, as far as this host can know it, and never before this
// agent released the barrier.
func (m *metering) start(ctx context.Context, r *run, v view) error {
	counters, err := m.gpus.EnergyMJ(ctx, v.spec().GPUs...)
	if err != nil {
		m.log.Warn("energy is not known", "lease", r.ref, "err", err)
	}
	start := m.startBoot(v)
	if err := m.journal.Start(r.ref, start, counters); err != nil {
		return err
	}
	m.runs.mu.Lock()
	r.goodSince = start
	m.runs.mu.Unlock()
	return m.runs.change(r, func(rec *record) { rec.Started, rec.BarrierOpened, rec.StartBoot = true, true, start })
}

// startBoot returns when a run's command began, in CLOCK_BOOTTIME milliseconds: as the guest noted, but not before the
// barrier was released and not after now, even if the wall clock was set in between.
func (m *metering) startBoot(v view) int64 {
	at := v.report.BootMS
	if at == 0 { // a guest of an earlier version
		at = m.bootAt(time.UnixMilli(v.report.AtMS))
	}
	return min(m.bootMS(), max(at, v.rec.BarrierBoot))
}

// bootAt maps a recent time of the host's wall clock to CLOCK_BOOTTIME. A time in the future maps to now.
func (m *metering) bootAt(t time.Time) int64 {
	now := m.bootMS()
	return min(now, now-m.now().Sub(t).Milliseconds())
}

// end closes the run's last segment after its workload ended. The segment of a run that is done and has kept its
// place ends when the run gives up its place.
func (m *metering) end(r *run, v view) error {
	o := v.rec.Outcome
	if v.waits(o) {
		return nil
	}
	end, open := m.lastSign(r, v)
	if !open {
		return nil
	}
	if o.keepsPlace() && !v.expired && v.rec.BootID == v.boot {
		end = max(end, m.bootMS())
	}
	return m.journal.End(r.ref, end)
}

// lastSign returns when a metered run ended, never before its last tick. open is false if the run is not metered, or no
// longer: an agent may die between the journal's end and its note of the outcome, and the repetition must give the same
// time again. Docker's end time is by the host's wall clock. If that clock was set since the start, the smaller reading
// counts: no more is proven than both clocks agree on.
func (m *metering) lastSign(r *run, v view) (bootMS int64, open bool) {
	bootMS, open = m.journal.LastTick(r.ref)
	if !v.work.FinishedAt.IsZero() {
		end := m.bootAt(v.work.FinishedAt)
		if v.report.BootMS > 0 {
			end = min(end, v.report.BootMS+v.work.FinishedAt.Sub(time.UnixMilli(v.report.AtMS)).Milliseconds())
		}
		bootMS = max(bootMS, end)
	}
	return bootMS, open
}
