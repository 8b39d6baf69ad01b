package gpu

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// seeFabrics keeps the registrations of the GPUs that answered, and has the inventory sent again if one has changed. A
// GPU that has become registered is due for a check: without the registration it did not compute. It is part of a look.
func (reg *registry) seeFabrics(conditions map[string]wire.Condition) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	maps.DeleteFunc(reg.fabrics, func(uuid string, _ wire.Fabric) bool {
		_, answered := conditions[uuid]
		return !answered
	})
	for uuid, c := range conditions {
		if c.Fabric != nil && !isSlice(uuid) && reg.noteFabric(uuid, *c.Fabric) {
			poke(reg.changed)
		}
	}
}

// noteFabric keeps one GPU's registration and reports whether it has changed. reg.mu is held.
func (reg *registry) noteFabric(uuid string, f wire.Fabric) (changed bool) {
	was, had := reg.fabrics[uuid]
	reg.fabrics[uuid] = f
	if r := reg.mem.GPUs[uuid]; r != nil && had && !was.Ready() && f.Ready() {
		r.CheckedFor = ""
	}
	return !had || fabricState(was) != fabricState(f)
}

// unregistered returns the GPUs that are not registered with their system's NVSwitches. alone is true if others are:
// it is then a matter of these GPUs, else of the host. NVML reports nothing wrong with them, but CUDA does not start
// on such a GPU (error 802).
func unregistered(fabrics map[string]wire.Fabric) (out map[string]wire.Fabric, alone bool) {
	out = maps.Clone(fabrics)
	maps.DeleteFunc(out, func(_ string, f wire.Fabric) bool { return f.Ready() })
	return out, len(out) < len(fabrics)
}

// fabricEvidence returns the evidence in a registration that is not complete.
func fabricEvidence(f wire.Fabric) Evidence {
	e := Evidence{Kind: kindFabric, Weight: Suspect,
		Detail: "it is not registered with the NVSwitches, so CUDA cannot start (error 802): " + fabricState(f)}
	if f.State == wire.FabricCompleted {
		e.Weight = Quarantined
	}
	return e
}

// fabricProblems returns that none of the GPUs is registered.
func fabricProblems(gpus []agentapi.GPU, fabrics map[string]wire.Fabric) []agentapi.Problem {
	out, alone := unregistered(fabrics)
	var at, states []string
	for _, g := range gpus {
		if f, ok := out[g.UUID]; ok && !alone {
			at = append(at, strconv.Itoa(g.Index))
			states = append(states, fmt.Sprintf("GPU %d: %s", g.Index, fabricState(f)))
		}
	}
	if len(at) == 0 {
		return nil
	}
	return []agentapi.Problem{{
		Code:     "fabric_not_ready",
		Severity: "bad",
		Cause: "CUDA cannot start: GPU " + strings.Join(at, ", ") +
			" is not registered with this system's NVSwitches (error 802).",
		Evidence: strings.Join(states, "; "),
		Fix: "Start the fabric manager, in the driver's version: systemctl enable --now nvidia-fabricmanager; see " +
			"journalctl -u nvidia-fabricmanager. HGX B200 and B300 also need nvlsm and the module ib_umad (modprobe " +
			"ib_umad). If it has just started, registration takes up to some minutes.",
	}}
}

func fabricState(f wire.Fabric) string {
	switch f.State {
	case wire.FabricNotStarted:
		return "registration has not started"
	case wire.FabricInProgress:
		return "registration is in progress"
	case wire.FabricCompleted:
		if f.Status == nil {
			return "registered"
		}
		return "registration failed: " + f.Status.Error()
	}
	return fmt.Sprintf("state %d", f.State)
}

// systemMemoryMB returns the machine's memory, in MiB; 0 if the kernel does not report it.
func systemMemoryMB(procFS string) int64 {
	b, err := os.ReadFile(filepath.Join(procFS, "meminfo"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err == nil {
				return kib >> 10
			}
		}
	}
	return 0
}
