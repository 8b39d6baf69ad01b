package agentapi

import (
	"encoding/json"
	"strings"
	"testing"
)

// Every text of an inventory is cleaned, wherever it is in it.
func TestAnInventoryIsClean(t *testing.T) {
	t.Parallel()
	const evil = "\x1b[31mEVIL\x1b[0m\r\n\u202e\x00\xff"
	inv := Inventory{
		Hostname: evil,
		OS:       evil,
		Runtimes: []string{evil},
		NICs:     []NIC{{Name: evil}},
		NUMA:     []NUMANode{{CPUs: evil}},
		GPUs: []GPU{{
			Model:   evil,
			InUse:   evil,
			VBIOS:   Known(evil),
			Serial:  Optional[string]{Error: evil},
			NVLinks: []NVLink{{Remote: evil}},
		}},
		Topology: [][]string{{evil}},
		Problems: []Problem{{Cause: evil, Evidence: evil}},
		Images:   []CachedImage{{Ref: evil}},
	}
	before, err := json.Marshal(inv)
	if err != nil {
		t.Fatal(err)
	}
	inv.Clean()
	after, err := json.Marshal(inv)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{`\u001b`, `\r`, `\n`, `\u0000`, "\u202e", `\ufffd`} {
		if !strings.Contains(string(before), bad) || strings.Contains(string(after), bad) {
			t.Errorf("%q, before and after:\n%s\n%s", bad, before, after)
		}
	}
	if n := strings.Count(string(after), "EVIL"); n != strings.Count(string(before), "EVIL") ||
		CleanText("NVIDIA H100 80GB — µs 日本") != "NVIDIA H100 80GB — µs 日本" {
		t.Errorf("what is printed is kept: %s", after)
	}
}
