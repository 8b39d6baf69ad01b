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
