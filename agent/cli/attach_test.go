package cli

import (
	"testing"

	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/internal/agentapi"
)

func TestAttachMode(t *testing.T) {
	t.Parallel()
	gpus := []agentapi.GPU{{UUID: "GPU-a"}, {UUID: "GPU-split", MIG: agentapi.Known(true)}}
	named := container.CDI{Devices: []string{"GPU-a"}, Files: []string{"f"}}
	for name, c := range map[string]struct {
		asked     string
		facts     container.Facts
		simulated bool
		want      container.Attach
		code      string
	}{
		"simulated":                {"", container.Facts{}, true, container.AttachNone, ""},
		"none with real GPUs":      {"none", container.Facts{CDI: named}, false, container.AttachNone, "attach_none"},
		"CDI names the whole GPUs": {"", container.Facts{CDI: named}, false, container.AttachCDI, ""},
		"the runtime":              {"", container.Facts{NVIDIARuntime: true}, false, container.AttachNVIDIA, ""},
		"nothing":                  {"", container.Facts{}, false, container.AttachNone, "no_gpu_runtime"},
		"the runtime, as asked": {"nvidia", container.Facts{
			CDI:           named,
			NVIDIARuntime: true,
		}, false, container.AttachNVIDIA, ""},
		"no runtime, as asked": {"nvidia", container.Facts{CDI: named}, false, container.AttachNVIDIA, "no_gpu_runtime"},
		"no CDI, as asked":     {"cdi", container.Facts{NVIDIARuntime: true}, false, container.AttachCDI, "no_gpu_runtime"},
		"stale CDI, as asked": {"cdi", container.Facts{NVIDIARuntime: true, CDI: container.CDI{Files: []string{"f"},
			Devices: []string{"0"}}}, false, container.AttachCDI, "cdi_not_usable"},
	} {
		inv := agentapi.Inventory{GPUs: gpus, Simulated: c.simulated}
		mode, problem := hostFlags{attach: c.asked}.attachMode(c.facts, inv)
		if mode != c.want || (problem == nil) != (c.code == "") || problem != nil && (problem.Code != c.code ||
			problem.Severity != "bad") {
			t.Errorf("%s: %s, %+v", name, mode, problem)
		}
	}
}
