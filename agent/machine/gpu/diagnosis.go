package gpu

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
)

// Health is the health of one GPU.
type Health struct {
	State  State
	Reason string // for people; "" when healthy
}

// Diagnosis decides how healthy each GPU is, by evidence, and keeps the events about it until the server has them.
type Diagnosis struct{ reg *registry }

// Health returns the present health by UUID, of every GPU seen since the host booted. While the driver does not answer,
// no GPU is healthy.
func (dg *Diagnosis) Health() map[string]Health {
	dg.reg.mu.Lock()
	defer dg.reg.mu.Unlock()
	out := map[string]Health{}
	for uuid, r := range dg.reg.mem.GPUs {
		if r.Seen == dg.reg.boot {
			out[uuid] = dg.healthOf(r)
		}
	}
	return out
}

// healthOf returns the health in a record for callers. reg.mu is held.
func (dg *Diagnosis) healthOf(r *record) Health {
	if r.State == Healthy && dg.reg.blind != nil {
		return Health{Suspect, dg.reg.maker.driver() + " does not answer: " + dg.reg.blind.Error()}
	}
	return Health{r.State, r.Reason}
}

// Pending returns the health events that are not acknowledged yet, oldest first. They survive restarts of the agent.
func (dg *Diagnosis) Pending() []agentapi.HealthEvent {
	dg.reg.mu.Lock()
	defer dg.reg.mu.Unlock()
	return slices.Clone(dg.reg.mem.Outbox)
}

// Ack removes the events up to and including seq: the server has committed them (SyncReply.HealthAck).
func (dg *Diagnosis) Ack(seq uint64) error {
	dg.reg.mu.Lock()
	defer dg.reg.mu.Unlock()
	before := len(dg.reg.mem.Outbox)
	dg.reg.mem.Outbox = slices.DeleteFunc(dg.reg.mem.Outbox, func(e agentapi.HealthEvent) bool { return e.Seq <= seq })
	if len(dg.reg.mem.Outbox) == before {
		return nil
	}
	return dg.reg.store.save(dg.reg.mem)
}

// Changed returns a channel that receives a value when health has changed, so that the agent syncs at once. Sends never
// block; at most one value waits.
func (dg *Diagnosis) Changed() <-chan struct{} { return dg.reg.changed }

// examine applies a whole look to a GPU.
func (dg *Diagnosis) examine(uuid string, standing []Evidence, reset bool) {
	dg.reg.mu.Lock()
	defer dg.reg.mu.Unlock()
	r := dg.reg.mem.GPUs[uuid]
	if r == nil || dg.reg.wsl() {
		return
	}
	standingBefore := r.Standing
	next, news, recovered := r.Look(standing, reset, dg.reg.boot, dg.reg.cfg.Now(), dg.reg.cfg.timing.recovers)
	r.Verdict = next
	for _, e := range news {
		dg.emit(r, e)
	}
	if recovered {
		dg.emit(r, Evidence{Kind: kindRecovered})
	}
	if len(news) == 0 && !recovered && !maps.Equal(standingBefore, next.Standing) {
		dg.reg.save()
	}
}

// accuse applies one piece of evidence to a GPU.
func (dg *Diagnosis) accuse(uuid string, e Evidence) {
	dg.reg.mu.Lock()
	defer dg.reg.mu.Unlock()
	r := dg.reg.mem.GPUs[uuid]
	if r == nil || e.App && r.AppBlamed || dg.reg.wsl() {
		return
	}
	if e.Slower != "" {
		r.slow.report(causeNVLink, e.Slower, dg.reg.cfg.Now())
		return // the next look emits it
	}
	next, news := r.Accuse(e, dg.reg.boot, dg.reg.cfg.Now())
	changed := !next.Last.Equal(r.Last)
	r.Verdict, r.AppBlamed = next, r.AppBlamed || e.App
	if news {
		dg.emit(r, e)
	} else if changed {
		dg.reg.save()
	}
}

// emit queues an event about r's present state, stores it and notifies the receiver of Changed. reg.mu is held.
func (dg *Diagnosis) emit(r *record, e Evidence) {
	dg.reg.mem.Seq++
	dg.reg.mem.Outbox = append(dg.reg.mem.Outbox, agentapi.HealthEvent{Seq: dg.reg.mem.Seq, GPU: r.GPU.UUID,
		Kind: e.Kind, Xid: e.Xid, Vendor: r.GPU.VendorOf(), Code: e.code(),
		State: string(r.State), Detail: e.Detail, BootID: dg.reg.boot, BootMS: hostinfo.BootMS()})
	if over := len(dg.reg.mem.Outbox) - maxOutbox; over > 0 {
		dg.reg.mem.Outbox = dg.reg.mem.Outbox[over:]
	}
	dg.reg.log.Warn("GPU health", "gpu", r.GPU.UUID, "kind", e.Kind, "xid", e.Xid, "state", r.State, "detail", e.Detail)
	dg.reg.save()
	poke(dg.reg.changed)
}

// concerned returns the devices that an event of a GPU is about: the slice whose GPU instance it happened in, or else
// the GPU and all its slices.
func (dg *Diagnosis) concerned(gpu string, instance *int) []string {
	dg.reg.mu.Lock()
	defer dg.reg.mu.Unlock()
	out := []string{gpu}
	for uuid, r := range dg.reg.mem.GPUs {
		switch {
		case r.Seen != dg.reg.boot || r.Instance == nil || r.GPU.Parent != gpu:
		case instance == nil:
			out = append(out, uuid)
		case r.Instance.ID == *instance:
			return []string{uuid}
		}
	}
	return out
}

// noteRecovery notes which GPUs a reset would mend, because the driver asks for it or memory errors stand, and for
// which the driver asks to recover the IMEX domain. It is part of a look.
func (dg *Diagnosis) noteRecovery(conditions map[string]wire.Condition) {
	dg.reg.mu.Lock()
	defer dg.reg.mu.Unlock()
	for uuid, c := range conditions {
		r := dg.reg.mem.GPUs[uuid]
		if r == nil {
			continue
		}
		action := wire.RecoverNone
		if c.RecoveryAction != nil {
			action = *c.RecoveryAction
		}
		standing := (c.RemapPending || c.ECCUncorrectable != nil && *c.ECCUncorrectable > 0) && !c.RemapFailure
		r.wantsReset = standing && action != wire.RecoverReboot ||
			slices.Contains([]int{wire.RecoverReset, wire.RecoverDrainP2P, wire.RecoverDrainAndReset}, action)
		if imex := action == wire.RecoverIMEX; r.wantsIMEX != imex {
			r.wantsIMEX = imex
			poke(dg.reg.changed)
		}
	}
}

// imexProblems returns that the driver asks to recover the IMEX domain: the daemons through which GPUs of several hosts
// share memory. Each of these GPUs computes as before. reg.mu is held.
func (dg *Diagnosis) imexProblems(gpus []agentapi.GPU) []agentapi.Problem {
	var at []string
	for _, g := range gpus {
		if r := dg.reg.mem.GPUs[g.UUID]; r != nil && r.wantsIMEX && r.Instance == nil {
			at = append(at, strconv.Itoa(g.Index))
		}
	}
	if len(at) == 0 {
		return nil
	}
	return []agentapi.Problem{{
		Code:     "imex_domain",
		Severity: "warn",
		Cause: "The driver asks to recover the IMEX domain, through which GPUs of several hosts share memory. The GPUs " +
			"are rented on.",
		Evidence: "nvidia-smi, GPU Recovery Action, GPU " + strings.Join(at, ", "),
		Fix:      "Restart the IMEX daemon on every host of the domain: systemctl restart nvidia-imex.",
	}}
}
