package host

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/text"
)

// minToolkit is the first NVIDIA Container Toolkit without CVE-2025-23266, which lets a container take over its host.
var minToolkit = [3]int{1, 17, 8}

// toolkitUnfit returns the reason for which the host's container toolkit must not give GPUs to workloads, or "".
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

// blocked returns the reason for which a host with this inventory cannot be rented at all, or "".
func blocked(inv *agentapi.Inventory) string {
	if why := toolkitUnfit(inv); why != "" {
		return why
	}
	if why := vendorUnfit(inv); why != "" {
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

// vendorUnfit returns the reason for which the vendors of a host's GPUs keep it from being rented, or "". An agent
// lists the GPUs of one vendor. Only AMD's get into containers as device nodes alone.
func vendorUnfit(inv *agentapi.Inventory) string {
	for i := range inv.GPUs {
		if inv.GPUs[i].VendorOf() != inv.GPUs[0].VendorOf() {
			return "it lists GPUs of two vendors: a host rents out those of one"
		}
	}
	if len(inv.GPUs) == 0 || inv.Simulated {
		return ""
	}
	if vendor := inv.GPUs[0].VendorOf(); (vendor == agentapi.AMD) != (inv.AttachMode == attachNodes) {
		return fmt.Sprintf("its agent would attach GPUs of %s by %q: update the agent", vendor, text.Clip(inv.AttachMode, 20))
	}
	return ""
}

// attachNodes is the mode in which GPUs are attached as device nodes.
const attachNodes = "nodes"

// version parses versions such as "1.17.8", "v1.17.8" and "1.17.8-1".
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

// nvlink reports whether a GPU has an active NVLink, and returns the total bandwidth of its active links in one
// direction, in Gbit/s. The bandwidth is 0 if the speed of any active link is unknown. Agents work it out; for
// older ones, nvlink derives it from the speed or the version of each NVLink.
func nvlink(g *agentapi.GPU) (active bool, gbps float64) {
	known := true
	if len(g.Links) > 0 {
		for _, l := range g.Links {
			if l.Type == agentapi.LinkNVLink {
				active, gbps, known = true, gbps+l.Gbps, known && l.Gbps > 0
			}
		}
		if !known {
			gbps = 0
		}
		return active, gbps
	}
	for _, l := range g.NVLinks {
		if !l.Active {
			continue
		}
		active = true
		speed, ok := agentapi.NVLinkGbps(l.Version)
		if l.Gbps > 0 && l.Gbps <= maxLinkGbps {
			speed, ok = l.Gbps, true
		}
		gbps, known = gbps+speed, known && ok
	}
	if !known {
		gbps = 0
	}
	return active, gbps
}

// busbwNVLink returns what a GPU sent over NVLink while the host's others of its model did the same, in Gbit/s, as the
// host says, and when; 0 and the epoch if it was not measured. gbps is what its links carry: of more nothing is
// believed.
func busbwNVLink(g *agentapi.GPU, gbps float64, now time.Time) (float64, time.Time) {
	if !(g.RingGbps > 0 && g.RingGbps <= gbps) {
		return 0, time.UnixMilli(0)
	}
	return g.RingGbps, time.UnixMilli(max(0, min(g.RingAtMS, now.UnixMilli()))) // its clock may be wrong
}

// maxLinkGbps is an upper limit for the reported speed of one NVLink; no real one is as fast.
const maxLinkGbps = 10_000
