package agent

import (
	"context"
	"time"
)

// noteStart begins the metering at the moment the command began, as far as this host can tell, and never before the
// barrier was released by this agent's own doing.
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

// startBoot is when a run's command began: as the guest noted, but not before the barrier was released and not after
// now, whatever a clock that was set meanwhile makes of it.
func (a *Agent) startBoot(v view) int64 {
	at := v.report.BootMS
	if at == 0 { // a guest of an earlier version
		at = a.bootAt(time.UnixMilli(v.report.AtMS))
	}
	return min(a.cfg.BootMS(), max(at, v.rec.BarrierBoot))
}

// bootAt maps a recent moment of the host's clock to CLOCK_BOOTTIME. A moment in the future is now.
func (a *Agent) bootAt(t time.Time) int64 {
	now := a.cfg.BootMS()
	return min(now, now-a.cfg.Now().Sub(t).Milliseconds())
}

// endMeter closes the run's last segment when its workload ended. One that was done and kept its place ends when it
// gives it up.
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

// lastSign is when a metered run ended, never before its last sign of life; open is false when it is not metered, or no
// more: an agent may die between the journal's end and its note of the outcome, which must tell the same moment again.
// Docker's word for the end is by the host's clock. Where that was set since the start, the shorter reading counts: no
// more is proved than both agree on.
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
