package gpu

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/machine/gpu/probe"
)

// The record of calls has every code and value as the library gives them, of the driver and of each GPU.
func TestRecordedCalls(t *testing.T) {
	h := newHost(t, h100, 2)
	h.fault(t, 1, func(g *fakeprofile.GPU) {
		g.Errors = []fakeprofile.Error{{Function: "nvmlDeviceGetPowerUsage", Code: 999}}
	})
	t.Setenv(fakeprofile.Env, h.path)
	type call struct {
		GPU, Call string
		Code      int
	}
	want := map[call]string{
		{Call: "nvmlSystemGetDriverVersion"}:                               `"550.90.07"`,
		{GPU: h.uuid(0), Call: "nvmlDeviceGetName"}:                        `"` + h100 + `"`,
		{GPU: h.uuid(0), Call: "nvmlDeviceGetNvLinkVersion"}:               "6",
		{GPU: h.uuid(1), Call: "nvmlDeviceGetPowerUsage", Code: 999}:       "",
		{GPU: h.uuid(0), Call: "nvmlDeviceGetNvLinkState", Code: 2}:        "",
		{GPU: h.uuid(0), Call: "nvmlDeviceGetComputeRunningProcesses"}:     "[]",
		{GPU: h.uuid(0), Call: "nvmlDeviceGetTotalEccErrors"}:              "0",
		{GPU: h.uuid(1), Call: "nvmlDeviceGetCudaComputeCapability"}:       "",
		{GPU: h.uuid(1), Call: "nvmlDeviceGetTotalEnergyConsumption"}:      "",
		{GPU: h.uuid(1), Call: "nvmlDeviceGetNvLinkRemoteDeviceType"}:      "",
		{GPU: h.uuid(1), Call: "nvmlDeviceGetPowerManagementLimit"}:        "700000",
		{GPU: h.uuid(1), Call: "nvmlDeviceGetGraphicsRunningProcesses"}:    "[]",
		{GPU: h.uuid(1), Call: "nvmlDeviceGetMaxPcieLinkGeneration"}:       "5",
		{GPU: h.uuid(1), Call: "nvmlDeviceGetPowerManagementDefaultLimit"}: "700000",
	}
	for _, c := range probe.Record(library) {
		key := call{GPU: c.GPU, Call: c.Call, Code: c.Code}
		if value, ok := want[key]; ok && (value == "" || value == string(c.Value)) {
			delete(want, key)
		}
	}
	if len(want) > 0 {
		t.Errorf("not recorded: %v", want)
	}
}

// The fake library answers every call with the codes that the driver gave on a device: one H200 of a virtual machine,
// without NVLinks and fabric. The values differ; those that a device decides are compared.
func TestFakeAnswersAsADeviceDid(t *testing.T) {
	b, err := os.ReadFile("../../../docs/hardware/NVIDIA-H200/nvml-calls.json")
	if err != nil {
		t.Fatal(err)
	}
	var device []probe.Call
	if err := json.Unmarshal(b, &device); err != nil {
		t.Fatal(err)
	}
	h := newHost(t, "NVIDIA H200", 1)
	h.fault(t, 0, func(g *fakeprofile.GPU) {
		g.NVLinks, g.NVLinkVersion, g.NVLinkRemote, g.FabricState = 0, 0, "", 0
	})
	t.Setenv(fakeprofile.Env, h.path)
	same := []string{"nvmlDeviceGetName", "nvmlDeviceGetArchitecture", "nvmlDeviceGetMaxPcieLinkGeneration",
		"nvmlDeviceGetMaxPcieLinkWidth", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetEccMode", "nvmlDeviceGetMigMode",
		"nvmlDeviceGetPowerManagementLimit", "nvmlDeviceGetPowerManagementDefaultLimit", "nvmlDeviceGetNumFans",
		"nvmlSystemGetConfComputeState", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetComputeRunningProcesses"}
	type answer struct {
		Code  int
		Value string
	}
	answers := func(calls []probe.Call) map[string][]answer {
		out := map[string][]answer{}
		for _, c := range calls {
			a := answer{Code: c.Code}
			if slices.Contains(same, c.Call) {
				a.Value = string(c.Value)
			}
			if !slices.Contains(out[c.Call], a) {
				out[c.Call] = append(out[c.Call], a)
			}
		}
		return out
	}
	got := answers(probe.Record(library))
	delete(got, "nvmlDeviceGetVirtualizationMode") // the agent calls it since that recording
	if diff := cmp.Diff(answers(device), got); diff != "" {
		t.Errorf("the fake library answers otherwise (-device +fake):\n%s", diff)
	}
}
