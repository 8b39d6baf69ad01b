package cli

import (
	"testing"

	"github.com/musterhq/muster/agent/workload/container"
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

// Slices that no CDI specification names are not offered, and keep no whole GPU from being rented. A host of slices
// alone needs CDI.
func TestSlicesNeedCDI(t *testing.T) {
	t.Parallel()
	slice := func(name string) agentapi.GPU {
		return agentapi.GPU{UUID: name, Kind: agentapi.KindSlice, Parent: "GPU-split"}
	}
	inv := agentapi.Inventory{GPUs: []agentapi.GPU{
		{UUID: "GPU-a"}, {UUID: "GPU-split", MIG: agentapi.Known(true)}, slice("MIG-a"), slice("MIG-b"),
	}}
	facts := container.Facts{NVIDIARuntime: true, CDI: container.CDI{Devices: []string{"MIG-a"}, Files: []string{"f"}}}
	problems := keepUnnamedSlices(&inv, facts)
	if len(problems) != 1 || problems[0].Code != "slices_not_in_cdi" || problems[0].Evidence != "MIG-b" {
		t.Errorf("%+v", problems)
	}
	if inv.GPUs[2].InUse != "" || inv.GPUs[3].InUse == "" {
		t.Errorf("%+v", inv.GPUs)
	}
	if mode, _ := (hostFlags{}).attachMode(facts, inv); mode != container.AttachNVIDIA {
		t.Errorf("the whole GPU: %s", mode)
	}
	inv.GPUs = inv.GPUs[1:]
	if mode, problem := (hostFlags{}).attachMode(facts, inv); mode != container.AttachNone || problem == nil {
		t.Errorf("slices alone: %s, %+v", mode, problem)
	}
	facts.CDI.Devices = append(facts.CDI.Devices, "MIG-b")
	if mode, problem := (hostFlags{}).attachMode(facts, inv); mode != container.AttachCDI || problem != nil {
		t.Errorf("slices alone, named: %s, %+v", mode, problem)
	}
}

// AMD's GPUs are attached as device nodes, with or without anything of NVIDIA's, and without gVisor.
func TestAMDsGPUsNeedNothingOfNVIDIAs(t *testing.T) {
	t.Parallel()
	inv := agentapi.Inventory{GPUs: []agentapi.GPU{{UUID: "AMD-00a1", Vendor: agentapi.AMD}}}
	for _, facts := range []container.Facts{{}, {NVIDIARuntime: true}} {
		for _, asked := range []string{"", "none", "cdi"} {
			mode, problem := hostFlags{attach: asked}.attachMode(facts, inv)
			if mode != container.AttachNodes || problem != nil {
				t.Errorf("--attach %q: %s, %+v", asked, mode, problem)
			}
		}
	}
}
