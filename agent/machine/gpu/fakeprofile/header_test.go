package fakeprofile

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// headerText is the nvml.h of the go-nvml version that go.mod pins.
func headerText(t *testing.T) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "pkg/nvml/nvml.h"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// header are the integer constants of nvml.h.
func header(t *testing.T) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	constant := regexp.MustCompile(`(?m)^\s*(?:#define\s+(NVML_\w+)\s+|(NVML_\w+)\s*=\s*)(0[xX][0-9a-fA-F]+|\d+)\b`)
	for _, m := range constant.FindAllStringSubmatch(headerText(t), -1) {
		n, err := strconv.ParseInt(m[3], 0, 64)
		if err == nil {
			out[m[1]+m[2]] = n
		}
	}
	if len(out) < 500 {
		t.Fatalf("only %d constants were read", len(out))
	}
	return out
}

// What the agent, the server and the fake library take for NVML's numbers are NVML's numbers.
func TestConstantsAreTheHeaders(t *testing.T) {
	t.Parallel()
	h := header(t)
	for name, got := range map[string]int64{
		"NVML_NVLINK_VERSION_2_0": nvlink2, "NVML_NVLINK_VERSION_3_0": nvlink3, "NVML_NVLINK_VERSION_3_1": nvlink3A100,
		"NVML_NVLINK_VERSION_4_0": nvlink4, "NVML_NVLINK_VERSION_5_0": nvlink5,
		"NVML_GPU_FABRIC_STATE_COMPLETED": fabricCompleted,
		"NVML_DEVICE_ARCH_VOLTA":          volta, "NVML_DEVICE_ARCH_AMPERE": ampere, "NVML_DEVICE_ARCH_ADA": ada,
		"NVML_DEVICE_ARCH_HOPPER": hopper, "NVML_DEVICE_ARCH_BLACKWELL": blackwell,
		"NVML_ERROR_NOT_SUPPORTED": wire.CodeNotSupported, "NVML_ERROR_NOT_FOUND": wire.CodeNotFound,
		"NVML_ERROR_DRIVER_NOT_LOADED": wire.CodeDriverNotLoaded, "NVML_ERROR_LIBRARY_NOT_FOUND": wire.CodeLibraryNotFound,
		"NVML_ERROR_FUNCTION_NOT_FOUND": wire.CodeFunctionNotFound, "NVML_ERROR_GPU_IS_LOST": wire.CodeGPULost,
		"NVML_ERROR_RESET_REQUIRED": wire.CodeResetRequired, "NVML_ERROR_LIB_RM_VERSION_MISMATCH": wire.CodeMismatch,
		"NVML_ERROR_UNKNOWN":            wire.CodeUnknown,
		"NVML_GPU_RECOVERY_ACTION_NONE": wire.RecoverNone, "NVML_GPU_RECOVERY_ACTION_GPU_RESET": wire.RecoverReset,
		"NVML_GPU_RECOVERY_ACTION_NODE_REBOOT":     wire.RecoverReboot,
		"NVML_GPU_RECOVERY_ACTION_DRAIN_P2P":       wire.RecoverDrainP2P,
		"NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET": wire.RecoverDrainAndReset,
		"NVML_GPU_FABRIC_STATE_NOT_SUPPORTED":      wire.FabricNotSupported,
		"NVML_GPU_FABRIC_STATE_NOT_STARTED":        wire.FabricNotStarted,
		"NVML_GPU_FABRIC_STATE_IN_PROGRESS":        wire.FabricInProgress,

		"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW":             wire.FabricDegraded,
		"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY":          wire.FabricRecovering,
		"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY":         wire.FabricUnhealthy,
		"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY": wire.FabricTimeouts,
		"NVML_GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION": wire.FabricConfiguration,
		"NVML_GPU_FABRIC_HEALTH_MASK_DEGRADED_BW_TRUE":              wire.FabricYes,
		"NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_RECOVERY_TRUE":           wire.FabricYes,
		"NVML_GPU_FABRIC_HEALTH_MASK_ROUTE_UNHEALTHY_TRUE":          wire.FabricYes,
		"NVML_GPU_FABRIC_HEALTH_MASK_ACCESS_TIMEOUT_RECOVERY_TRUE":  wire.FabricYes,
		"NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION_NONE":  wire.FabricConfiguredWell,
	} {
		if want, ok := h[name]; !ok || got != want {
			t.Errorf("%s is %d, nvml.h has %d (%t)", name, got, want, ok)
		}
	}
}

// The bits by which the agent names what holds a GPU's clocks down are those of nvml.h, which defines some under the
// older name only.
func TestClocksReasonsAreTheHeaders(t *testing.T) {
	t.Parallel()
	text := headerText(t)
	defined := map[string]uint64{}
	bit := regexp.MustCompile(`(?m)^#define\s+nvmlClocks(?:Event|Throttle)Reason(\w+)\s+(0x[0-9a-fA-F]+)LL`)
	for _, m := range bit.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseUint(m[2], 0, 64)
		if err != nil {
			t.Fatal(err)
		}
		if n != 0 {
			defined[m[1]] = n
		}
	}
	names := map[string]string{
		"GpuIdle": "gpu_idle", "ApplicationsClocksSetting": "applications_clocks_setting", "SwPowerCap": "sw_power_cap",
		"HwSlowdown": "hw_slowdown", "SyncBoost": "sync_boost", "SwThermalSlowdown": "sw_thermal_slowdown",
		"HwThermalSlowdown": "hw_thermal_slowdown", "HwPowerBrakeSlowdown": "hw_power_brake_slowdown",
		"DisplayClockSetting": "display_clock_setting",
	}
	if len(defined) != len(names) {
		t.Errorf("nvml.h defines %v", defined)
	}
	for name, n := range defined {
		if got := wire.ClocksReasons(n); len(got) != 1 || got[0] != names[name] {
			t.Errorf("%s (%#x) is %q, want %q", name, n, got, names[name])
		}
	}
}

// NVLink bandwidth per generation and link in one direction, Gbit/s, from NVIDIA's data sheets: 300 GB/s of a V100's 6
// links, 600 of an A100's 12, 900 of an H100's 18, 1800 of a B200's 18, both directions together.
func TestNVLinkBandwidthByTheHeadersVersions(t *testing.T) {
	t.Parallel()
	h := header(t)
	want := map[string]float64{
		"1_0": 160, "2_0": 200, "2_2": 200, "3_0": 200, "3_1": 200, "4_0": 200, "5_0": 400,
	}
	known := 0
	for name, n := range h {
		generation, ok := strings.CutPrefix(name, "NVML_NVLINK_VERSION_")
		if !ok {
			continue
		}
		known++
		gbps, ok := agentapi.NVLinkGbps(int(n))
		if gbps != want[generation] || ok != (want[generation] > 0) {
			t.Errorf("%s (%d): %v Gbit/s, known %t; want %v", name, n, gbps, ok, want[generation])
		}
	}
	if known != len(want)+2 { // and INVALID, and 6.0, of which no data sheet was read
		t.Errorf("nvml.h has %d NVLink versions: is there a new one?", known)
	}
	for model, gbps := range map[string]float64{
		"Tesla V100-SXM2-32GB": 1200, "NVIDIA A100-SXM4-80GB": 2400, "NVIDIA H100 80GB HBM3": 3600, "NVIDIA H200": 3600,
		"NVIDIA B200": 7200,
	} {
		g := models[model]
		if per, _ := agentapi.NVLinkGbps(int(g.NVLinkVersion)); per*float64(g.NVLinks) != gbps {
			t.Errorf("the simulated %s has %v Gbit/s of NVLink, want %v", model, per*float64(g.NVLinks), gbps)
		}
	}
}

// The fake library takes the handles of MIG devices where nvml.h says so, and refuses them everywhere else.
func TestMIGHandlesAreTakenByTheHeader(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../fakenvml/instance.c")
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := strings.Cut(string(b), "};")
	takers := regexp.MustCompile(`"(nvml\w+)"`).FindAllStringSubmatch(list, -1)
	if len(takers) < 10 {
		t.Fatalf("only %d were read", len(takers))
	}
	text := headerText(t)
	for _, m := range takers {
		name := regexp.MustCompile(`_v\d+$`).ReplaceAllString(m[1], "")
		found := false
		for _, at := range regexp.MustCompile(`DECLDIR `+name+`(_v\d+)?\(`).FindAllStringIndex(text, -1) {
			begin := strings.LastIndex(text[:at[0]], "/**")
			found = found || strings.Contains(strings.ToUpper(text[begin:at[0]]), "MIG")
		}
		if !found {
			t.Errorf("nvml.h says nothing of MIG devices at %s", name)
		}
	}
}
