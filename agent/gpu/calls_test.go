package gpu

import (
	"testing"

	"github.com/musterhq/muster/agent/gpu/fakeprofile"
	"github.com/musterhq/muster/agent/gpu/probe"
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
