package host

import (
	"regexp"
	"slices"

	"github.com/musterhq/muster/internal/agentapi"
)

// uuidForms are the forms of devices' UUIDs, by vendor and kind. Muster sells devices of these vendors and kinds only.
var uuidForms = map[[2]string]*regexp.Regexp{
	{agentapi.NVIDIA, agentapi.KindGPU}:   regexp.MustCompile(`^GPU-.{1,60}$`),
	{agentapi.NVIDIA, agentapi.KindSlice}: regexp.MustCompile(`^MIG-[0-9A-Za-z./:_-]{1,100}$`),
	{agentapi.AMD, agentapi.KindGPU}:      regexp.MustCompile(`^AMD-[0-9A-Za-z.:_-]{1,60}$`),
}

// runtimeVersion is the form of the version of a vendor's runtime.
var runtimeVersion = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,4}){0,3}$`)

// hiveName is the form of the name of GPUs that are reset together.
var hiveName = regexp.MustCompile(`^[0-9a-f]{0,32}$`)

// maxLinks is an upper limit for the number of GPUs and switches that a GPU has links to.
const maxLinks = 64

// checkDevice returns what is impossible about the vendor, kind, name and links of a device, or "".
func checkDevice(inv *agentapi.Inventory, g *agentapi.GPU) string {
	form := uuidForms[[2]string{g.VendorOf(), g.KindOf()}]
	switch {
	case form == nil:
		return "neither a GPU of NVIDIA or AMD nor a MIG device"
	case !form.MatchString(g.UUID):
		return "not the UUID of such a device"
	case (g.KindOf() == agentapi.KindSlice) != (g.Parent != ""):
		return "a slice has a parent, and nothing else has one"
	case g.Parent != "" && !slices.ContainsFunc(inv.GPUs, func(p agentapi.GPU) bool {
		return p.UUID == g.Parent && p.KindOf() == agentapi.KindGPU && p.VendorOf() == g.VendorOf() && p.VRAMMB >= g.VRAMMB
	}):
		return "its parent is not a GPU of this host with at least as much memory"
	case !hiveName.MatchString(g.Hive):
		return "not the name of a hive"
	case len(g.AttachName) > 100 || len(g.Runtimes) > 8 || len(g.Links) > maxLinks:
		return "too many links or runtimes, or too long a name"
	}
	for name, version := range g.Runtimes {
		if len(name) > 20 || !runtimeVersion.MatchString(version) {
			return "not the version of a runtime"
		}
	}
	for _, l := range g.Links {
		known := l.Type == agentapi.LinkNVLink || l.Type == agentapi.LinkXGMI
		if !known || len(l.Peer) > 64 || !(l.Gbps >= 0 && l.Gbps <= maxLinks*maxLinkGbps) {
			return "not a link"
		}
	}
	return ""
}

// parentsFirst returns an inventory's devices with each GPU before its slices.
func parentsFirst(gpus []agentapi.GPU) []*agentapi.GPU {
	out := make([]*agentapi.GPU, 0, len(gpus))
	for _, slice := range []bool{false, true} {
		for i := range gpus {
			if (gpus[i].KindOf() == agentapi.KindSlice) == slice {
				out = append(out, &gpus[i])
			}
		}
	}
	return out
}
