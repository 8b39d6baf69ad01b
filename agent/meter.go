package agent

import (
	"context"
	"time"
)

// noteStart begins the metering at the moment the command began, as far as this host can know it, and never before this
// agent released the barrier.
func (a *Agent) noteStart(ctx context.Context, r *run, v view) error {
	counters, err := a.cfg.GPUs.EnergyMJ(ctx, v.spec().GPUs...)
	if err != nil {
		a.log.Warn("energy is not known", "lease", r.ref, "err", err)
	}
	start := a.startBoot(v)
	if err := a.journal.Start(r.ref, start, counters); err != nil {
		return err
	}
	a.mu.Lock()
	r.goodSince = start
	a.mu.Unlock()
	return a.change(r, func(rec *record) { rec.Started, rec.BarrierOpened, rec.StartBoot = true, true, start })
}

// startBoot returns when a run's command began, in CLOCK_BOOTTIME milliseconds: as the guest noted, but not before the
// barrier was released and not after now, even if the wall clock was set in between.
func (a *Agent) startBoot(v view) int64 {
	at := v.report.BootMS
	if at == 0 { // a guest of an earlier version
		at = a.bootAt(time.UnixMilli(v.report.AtMS))
	}
	return min(a.cfg.BootMS(), max(at, v.rec.BarrierBoot))
}

// bootAt maps a recent time of the host's wall clock to CLOCK_BOOTTIME. A time in the future maps to now.
func (a *Agent) bootAt(t time.Time) int64 {
	now := a.cfg.BootMS()
	return min(now, now-a.cfg.Now().Sub(t).Milliseconds())
}

// endMeter closes the run's last segment after its workload ended. The segment of a run that is done and has kept its
// place ends when the run gives up its place.
func (a *Agent) endMeter(r *run, v view) error {
	o := v.rec.Outcome
	if v.waits(o) {
		return nil
	}
	end, open := a.lastSign(r, v)
	if !open {
		return nil
	}
	if o.keepsPlace() && !v.expired && v.rec.BootID == v.boot {
		end = max(end, a.cfg.BootMS())
	}
	return a.journal.End(r.ref, end)
}

// lastSign returns when a metered run ended, never before its last tick. open is false if the run is not metered, or no
// longer: an agent may die between the journal's end and its note of the outcome, and the repetition must give the same
// time again. Docker's end time is by the host's wall clock. If that clock was set since the start, the smaller reading
// counts: no more is proven than both clocks agree on.
func (a *Agent) lastSign(r *run, v view) (bootMS int64, open bool) {
	bootMS, open = a.journal.LastTick(r.ref)
	if !v.work.FinishedAt.IsZero() {
		end := a.bootAt(v.work.FinishedAt)
		if v.report.BootMS > 0 {
			end = min(end, v.report.BootMS+v.work.FinishedAt.Sub(time.UnixMilli(v.report.AtMS)).Milliseconds())
		}
		bootMS = max(bootMS, end)
	}
	return bootMS, open
}
