package host

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

func TestToolkitVersions(t *testing.T) {
	t.Parallel()
	for v, fit := range map[string]bool{
		"1.17.8": true, "1.17.8-1": true, "v1.18.0": true, "2.0": true, "1.17.10": true, " 1.17.8~rc.1 ": false,
		"1.17.7": false, "1.16.2": false, "0.9.9": false, "": false, "unknown": false, "1": false, "1.-2.3": false,
	} {
		why := toolkitUnfit(&agentapi.Inventory{AttachMode: "cdi", ToolkitVersion: v})
		if (why == "") != fit {
			t.Errorf("%q: %q", v, why)
		}
	}
	if why := toolkitUnfit(&agentapi.Inventory{AttachMode: "none"}); why != "" {
		t.Error(why)
	}
}

func TestBlocked(t *testing.T) {
	t.Parallel()
	gpus := []agentapi.GPU{{UUID: "GPU-1"}}
	for name, tc := range map[string]struct {
		inv  agentapi.Inventory
		says string
	}{
		"fit":           {agentapi.Inventory{AttachMode: "cdi", ToolkitVersion: "1.17.8", GPUs: gpus}, ""},
		"simulated":     {agentapi.Inventory{AttachMode: "none", Simulated: true, GPUs: gpus}, ""},
		"cannot attach": {agentapi.Inventory{AttachMode: "none", GPUs: gpus}, "Toolkit"},
		"no GPU":        {agentapi.Inventory{AttachMode: "none", Simulated: true}, "no GPU"},
		"only a warning": {agentapi.Inventory{
			AttachMode: "none",
			Simulated:  true,
			GPUs:       gpus,
			Problems:   []agentapi.Problem{{Severity: "warn", Cause: "slow"}},
		}, ""},
		"a bad problem": {agentapi.Inventory{
			AttachMode: "none",
			Simulated:  true,
			GPUs:       gpus,
			Problems:   []agentapi.Problem{{Severity: "bad", Cause: "no disk"}},
		}, "no disk"},
	} {
		if why := blocked(&tc.inv); (why == "") != (tc.says == "") || !strings.Contains(why, tc.says) {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// NVLink is there when a link is active, whatever its version; its bandwidth follows from NVML's enum, which is no
// version number, and is 0 when it is not known.
func TestNVLink(t *testing.T) {
	t.Parallel()
	links := func(n, version int, gbps float64) (out []agentapi.NVLink) {
		for i := range n {
			out = append(out, agentapi.NVLink{Link: i, Active: true, Version: version, Gbps: gbps})
		}
		return out
	}
	for name, tc := range map[string]struct {
		links  []agentapi.NVLink
		active bool
		gbps   float64
	}{
		"V100":             {links(6, 2, 0), true, 1200},
		"A100":             {links(12, 5, 0), true, 2400},
		"H100":             {links(18, 6, 0), true, 3600},
		"B200":             {links(18, 7, 0), true, 7200},
		"the agent says":   {links(2, 99, 500), true, 1000},
		"not known":        {links(18, 99, 0), true, 0},
		"beyond belief":    {links(1, 99, 1e9), true, 0},
		"one is not known": {append(links(2, 6, 0), links(1, 99, 0)...), true, 0},
		"inactive":         {[]agentapi.NVLink{{Version: 6}}, false, 0},
		"none":             {nil, false, 0},
	} {
		active, gbps := nvlink(&agentapi.GPU{NVLinks: tc.links})
		if active != tc.active || gbps != tc.gbps {
			t.Errorf("%s: %t, %v Gbit/s; want %t, %v", name, active, gbps, tc.active, tc.gbps)
		}
	}
}

// A GPU that is split into instances is not rented whole, whatever its agent says of its use.
func TestSplitGPUIsInUse(t *testing.T) {
	t.Parallel()
	for want, g := range map[string]agentapi.GPU{
		"":                           {MIG: agentapi.Known(false)},
		"Xorg, 412 MiB":              {InUse: "Xorg, 412 MiB", MIG: agentapi.Known(true)},
		"split into instances (MIG)": {MIG: agentapi.Known(true)},
	} {
		if got := inUse(&g); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func FuzzVersion(f *testing.F) {
	f.Add("1.17.8-1")
	f.Fuzz(func(t *testing.T, s string) {
		v, ok := version(s)
		if ok && (v[0] < 0 || v[1] < 0 || v[2] < 0) {
			t.Errorf("%q reads as %v", s, v)
		}
	})
}

func FuzzNameFor(f *testing.F) {
	f.Add("Gpu-Box_7.example.org")
	f.Fuzz(func(t *testing.T, s string) {
		if n := nameFor(s); !namePattern.MatchString(n) {
			t.Errorf("%q becomes %q", s, n)
		}
	})
}
