package gpu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// PowerLimits are the power limits that an operator wants, in watts, by index or UUID of the GPU; "" is for all others.
type PowerLimits map[string]int

// ParsePowerLimits parses "300", "0=250" and "GPU-…=250".
func ParsePowerLimits(texts []string) (PowerLimits, error) {
	out := PowerLimits{}
	for _, t := range texts {
		gpu, watts, named := strings.Cut(t, "=")
		if !named {
			gpu, watts = "", t
		}
		n, err := strconv.Atoi(watts)
		_, indexErr := strconv.ParseUint(gpu, 10, 16)
		if _, twice := out[gpu]; err != nil || n < 1 || n > 10_000 || twice ||
			(named && indexErr != nil && !strings.HasPrefix(gpu, "GPU-") && !strings.HasPrefix(gpu, "AMD-")) {
			return nil, fmt.Errorf("%q: want watts for all GPUs, or INDEX=WATTS or UUID=WATTS, each once", t)
		}
		out[gpu] = n
	}
	return out, nil
}

// of returns a GPU's limit in milliwatts; 0: the operator wants none.
func (l PowerLimits) of(g agentapi.GPU) int64 {
	for _, name := range []string{g.UUID, strconv.Itoa(g.Index), ""} {
		if w, ok := l[name]; ok {
			return int64(w) * 1000
		}
	}
	return 0
}

// powerKeeper keeps the GPUs at the power limits that the operator wants.
type powerKeeper struct {
	reg    *registry
	driver *driver
}

// keep sets every GPU's power limit, also if another program has changed it. It restores the GPU's default limit
// if this agent has set a limit before and the operator wants none any more. It is part of a look. A Monitor that
// stores no state only reads: it changes nothing on the host.
func (pk *powerKeeper) keep(ctx context.Context, uuids []string) {
	if pk.reg.cfg.StateDir == "" {
		return
	}
	known := pk.reg.known()
	for _, uuid := range uuids {
		r := known[uuid]
		pk.reg.mu.Lock()
		want := pk.limitOf(r.GPU)
		pk.reg.mu.Unlock()
		ask := want
		switch {
		case want == 0 && r.PowerSet == 0:
			continue
		case want == 0:
			ask = wire.DefaultPower
		}
		var w wire.Power
		err := pk.driver.probe.request(ctx, wire.Request{Method: wire.MethodPower, GPU: uuid, Milliwatts: ask}, &w)
		if ctx.Err() != nil {
			return
		}
		pk.reg.mu.Lock()
		if now := pk.reg.mem.GPUs[uuid]; now != nil {
			var refusal *wire.Error
			changed := false
			if err == nil && now.PowerSet != want {
				now.PowerSet = want // 0: restored
				changed = true
				pk.reg.log.Info("power limit set", "gpu", uuid, "watts", w.LimitMW/1000)
			}
			why := ""
			if errors.As(err, &refusal) {
				why = refusal.Error()
			}
			if now.powerWhy != why {
				now.powerWhy = why
				poke(pk.reg.changed)
				if why != "" {
					pk.reg.log.Warn("power limit could not be set", "gpu", uuid, "watts", ask/1000, "err", why)
				}
			}
			if changed {
				pk.reg.save()
				poke(pk.reg.changed)
			}
		}
		pk.reg.mu.Unlock()
	}
}

// limitOf returns the limit that the operator wants for a GPU. An index is that of the GPU's place on the PCI bus
// when the driver listed all GPUs: a GPU that is lost does not hand its limit to the next one. Limits that the
// operator has changed are for the GPUs as they are listed since. reg.mu is held.
func (pk *powerKeeper) limitOf(g agentapi.GPU) int64 {
	if i := slices.Index(pk.reg.mem.Places, shortPCI(g.PCIBus)); i >= 0 {
		g.Index = i
	}
	return pk.reg.cfg.PowerLimits.of(g)
}

// notePlaces keeps the places of the GPUs on the PCI bus by index, as the driver lists them now, unless it lists fewer
// GPUs than before with the same limits, or does not say where one is. reg.mu is held.
func (reg *registry) notePlaces(sys wire.System) {
	limits := fmt.Sprint(reg.cfg.PowerLimits)
	if limits == reg.mem.PlacesOf && len(sys.Devices) < len(reg.mem.Places) {
		return
	}
	var now []string
	for _, d := range sys.Devices {
		if d.PCI == "" {
			return
		}
		now = append(now, shortPCI(d.PCI))
	}
	if limits != reg.mem.PlacesOf || !slices.Equal(now, reg.mem.Places) {
		reg.mem.Places, reg.mem.PlacesOf = now, limits
		reg.save()
	}
}

// problems returns the power limits that could not be set. reg.mu is held.
func (pk *powerKeeper) problems() []agentapi.Problem {
	var out []agentapi.Problem
	for _, r := range pk.reg.mem.GPUs {
		if r.Seen != pk.reg.boot || r.powerWhy == "" {
			continue
		}
		p := agentapi.Problem{Code: "power_limit", Severity: "warn", Evidence: r.powerWhy,
			Cause: fmt.Sprintf("GPU %d's power limit could not be set to %d W.", r.GPU.Index,
				pk.limitOf(r.GPU)/1000),
			Fix: "Choose a limit that the GPU takes (nvidia-smi -q -d POWER); setting it needs root."}
		if pk.limitOf(r.GPU) == 0 {
			p.Cause = fmt.Sprintf("GPU %d could not be given back the power limit it was made for.", r.GPU.Index)
			p.Fix = "Set it by hand: nvidia-smi -pl."
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b agentapi.Problem) int { return strings.Compare(a.Cause, b.Cause) })
	return out
}
