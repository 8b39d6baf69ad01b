package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// mpsPipes is the folder in which NVIDIA's Multi-Process Service listens, and which the container toolkit mounts into
// every container that has GPUs.
const mpsPipes = "/tmp/nvidia-mps"

// driverProblems returns what is wrong with the driver although it answers.
func (m *Monitor) driverProblems(sys wire.System) []agentapi.Problem {
	var out []agentapi.Problem
	if p := m.replaced(sys); p != nil {
		out = append(out, *p)
	}
	if p := m.mps(); p != nil && len(sys.Devices) > 0 {
		out = append(out, *p)
	}
	return out
}

var driverVersion = regexp.MustCompile(`\b\d+\.\d+(?:\.\d+)?\b`)

// replaced returns a problem if the driver's libraries were upgraded under its loaded module. The probe, which has the
// old library in memory, goes on and finds nothing wrong, but no new process can use the GPUs.
func (m *Monitor) replaced(sys wire.System) *agentapi.Problem {
	b, err := os.ReadFile(filepath.Join(m.cfg.ProcFS, "driver/nvidia/version"))
	if err != nil || sys.Library == "" {
		return nil
	}
	line, _, _ := strings.Cut(string(b), "\n")
	module := driverVersion.FindString(strings.TrimPrefix(line, "NVRM version:"))
	path := filepath.Join(filepath.Dir(sys.Library), "libnvidia-ml.so.1")
	now := "missing"
	if file, err := filepath.EvalSymlinks(path); err == nil {
		now = driverVersion.FindString(strings.TrimPrefix(filepath.Base(file), "libnvidia-ml.so."))
	} else if !os.IsNotExist(err) {
		return nil
	}
	if module == "" || now == "" || now == module {
		return nil
	}
	p := mismatch(fmt.Sprintf("loaded module %s, %s is %s", module, path, now))
	return &p
}

// mismatch returns the problem of a driver whose library and module have different versions.
func mismatch(evidence string) agentapi.Problem {
	return agentapi.Problem{
		Code:     "driver_mismatch",
		Severity: "bad",
		Cause:    "The NVIDIA driver was upgraded, but the old one is still loaded.",
		Evidence: evidence,
		Fix: "Reboot the host, or unload and load the nvidia modules. To choose the moment yourself: apt-mark hold the " +
			"driver's packages, and leave them out of unattended-upgrades.",
	}
}

// mps returns a problem if NVIDIA's Multi-Process Service runs here, or its folder exists: the container toolkit mounts
// the folder into every container, so renters would share the owner's service.
func (m *Monitor) mps() *agentapi.Problem {
	m.mu.Lock()
	simulated := m.sys.Simulated
	m.mu.Unlock()
	var found []string
	pipes := m.cfg.MPSPipes
	if pipes == "" && !simulated {
		pipes = mpsPipes
	}
	if info, err := os.Stat(pipes); pipes != "" && err == nil && info.IsDir() {
		found = append(found, pipes)
	}
	if !simulated || m.cfg.MPSPipes != "" {
		names, _ := filepath.Glob(filepath.Join(m.cfg.ProcFS, "[0-9]*", "comm"))
		for _, path := range names {
			b, err := os.ReadFile(path) // the kernel keeps 15 characters of nvidia-cuda-mps-control and -server
			if name := strings.TrimSpace(string(b)); err == nil && strings.HasPrefix(name, "nvidia-cuda-mps") {
				found = append(found, name)
			}
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	return &agentapi.Problem{
		Code:     "mps_running",
		Severity: "bad",
		Cause:    "NVIDIA's Multi-Process Service is set up on this host: every node's container would share it.",
		Evidence: strings.Join(slices.Compact(found), ", "),
		Fix:      "End it (echo quit | nvidia-cuda-mps-control) and remove " + mpsPipes + ".",
	}
}
