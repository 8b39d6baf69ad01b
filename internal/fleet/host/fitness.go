package host

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/text"
)

// minToolkit is the first NVIDIA Container Toolkit without CVE-2025-23266 (a container takes over its host).
var minToolkit = [3]int{1, 17, 8}

// toolkitUnfit says why workloads may not get GPUs through the host's container toolkit, or "".
func toolkitUnfit(inv *agentapi.Inventory) string {
	if inv.AttachMode != "cdi" && inv.AttachMode != "nvidia" {
		return ""
	}
	v, ok := version(inv.ToolkitVersion)
	switch {
	case !ok:
		return "the version of the NVIDIA Container Toolkit is not known: install 1.17.8 or newer (older ones let a " +
			"container take over the host, CVE-2025-23266)"
	case less(v, minToolkit):
		return fmt.Sprintf("NVIDIA Container Toolkit %s lets a container take over the host (CVE-2025-23266): install "+
			"1.17.8 or newer", text.Clip(inv.ToolkitVersion, 20))
	}
	return ""
}

// blocked says why nothing of a host with this inventory can be rented, or "".
func blocked(inv *agentapi.Inventory) string {
	if why := toolkitUnfit(inv); why != "" {
		return why
	}
	if inv.AttachMode == "none" && !inv.Simulated {
		return "GPUs cannot be attached to containers: install the NVIDIA Container Toolkit, 1.17.8 or newer"
	}
	if len(inv.GPUs) == 0 {
		return "no GPU was found"
	}
	for _, p := range inv.Problems {
		if p.Severity == "bad" {
			return text.Clip(p.Cause, 300)
		}
	}
	return ""
}

// version reads "1.17.8", "v1.17.8" and "1.17.8-1".
func version(s string) (v [3]int, ok bool) {
	s = strings.TrimPrefix(strings.TrimSpace(s), "v")
	s, _, _ = strings.Cut(s, "-")
	parts := strings.SplitN(s, ".", 4)
	if len(parts) < 2 {
		return v, false
	}
	for i := range min(len(parts), 3) {
		n, err := strconv.Atoi(strings.TrimFunc(parts[i], func(r rune) bool { return r == '~' || r == '+' }))
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

func less(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}

// linkGBps is what one NVLink of a version carries in one direction, GB/s (NVIDIA's data sheets).
var linkGBps = map[int]float64{1: 20, 2: 25, 3: 25, 4: 25, 5: 50}

// nvlinkGbps is a GPU's NVLink bandwidth in one direction over its active links, Gbit/s.
func nvlinkGbps(g *agentapi.GPU) float64 {
	sum := 0.0
	for _, l := range g.NVLinks {
		if l.Active {
			sum += 8 * linkGBps[l.Version]
		}
	}
	return sum
}
