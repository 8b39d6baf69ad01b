package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// fabricProblems returns the GPUs that are not registered with their system's NVSwitches. NVML reports nothing wrong,
// but CUDA does not start on such a GPU (error 802).
func fabricProblems(gpus []agentapi.GPU, fabrics map[string]wire.Fabric) []agentapi.Problem {
	var at, states []string
	for _, g := range gpus {
		f, ok := fabrics[g.UUID]
		if !ok || f.State == wire.FabricCompleted && f.Status == nil {
			continue
		}
		at = append(at, strconv.Itoa(g.Index))
		states = append(states, fmt.Sprintf("GPU %d: %s", g.Index, fabricState(f)))
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
			"journalctl -u nvidia-fabricmanager.",
	}}
}

func fabricState(f wire.Fabric) string {
	switch f.State {
	case wire.FabricNotStarted:
		return "registration has not started"
	case wire.FabricInProgress:
		return "registration is in progress"
	case wire.FabricCompleted:
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
