package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// slow is what has slowed a GPU down of late. A degraded GPU goes on working and is rented on; its offer says why it is
// slower.
type slow struct {
	causes map[string]slowdown // by kind
	links  *int64              // NVLink errors at the last look
	// replays are the packets that the GPU sent again over PCIe until the last look, which was at replaysAt.
	replays   *int64
	replaysAt time.Time
	most      int // NVLinks that worked at one look; fewer later are a defect
	// restarted is the first look after a restart of the agent at a GPU that was degraded before it.
	restarted time.Time
}

// slowdown is one cause that was seen at several looks.
type slowdown struct {
	first, last time.Time
	looks       int
	text        string
	reported    bool
}

// Numbers of the rules for degraded GPUs.
const (
	slowLooks = 3  // looks that must see a cause, in addition to the time that it must last
	busy      = 50 // percent; an idle GPU makes its PCIe link slower to save power
)

// Causes that are named in several places.
const (
	causePCIe   = "pcie"
	causeNVLink = "nvlink"
)

// replaysPerMinute is how many packets a good PCIe link sends again at most: the limit in NVIDIA's DCGM.
const replaysPerMinute = 8

// nvlinks is what is known of a GPU's NVLinks at a look.
type nvlinks struct {
	up     *int // that work
	all    int  // that must, because they lead to switches; 0: not known
	faults []string
}

// report adds a cause that was reported, not seen at a look: it counts at once.
func (s *slow) report(kind, text string, now time.Time) {
	if s.causes == nil {
		s.causes = map[string]slowdown{}
	}
	s.causes[kind] = slowdown{first: now, last: now, text: text, reported: true}
}

// see adds a look at a GPU. calm is the time after which a cause that is not seen any more is forgotten.
func (s *slow) see(x wire.Sample, n nvlinks, now time.Time, calm time.Duration) {
	if s.causes == nil {
		s.causes = map[string]slowdown{}
	}
	loaded := x.Util != nil && *x.Util >= busy
	seen := causesOf(x, loaded)
	if s.links != nil && x.NVLinkErrors != nil && *x.NVLinkErrors > *s.links {
		seen[causeNVLink] = "NVLink errors rise"
	}
	s.links = x.NVLinkErrors
	if since := now.Sub(s.replaysAt); s.replays != nil && x.PCIeReplays != nil && since > 0 &&
		float64(*x.PCIeReplays-*s.replays)/since.Minutes() > replaysPerMinute {
		seen["pcie_replays"] = "PCIe errors: packets are sent again"
	}
	s.replays, s.replaysAt = x.PCIeReplays, now
	if n.up != nil {
		s.most = max(s.most, *n.up, n.all)
		if *n.up < s.most {
			seen["nvlink_down"] = fmt.Sprintf("%d of %d NVLinks up", *n.up, s.most)
		}
	}
	if len(n.faults) > 0 {
		seen["fabric"] = "NVSwitch fabric: " + strings.Join(n.faults, ", ")
	}
	for kind, text := range seen {
		c, ok := s.causes[kind]
		if !ok {
			c.first = now
		}
		c.last, c.looks, c.text = now, c.looks+1, text
		s.causes[kind] = c
	}
	maps.DeleteFunc(s.causes, func(kind string, c slowdown) bool {
		if _, now := seen[kind]; kind == causePCIe && !now {
			return loaded && x.PCIeWidth != nil // an idle link shows nothing
		}
		return now.Sub(c.last) >= calm
	})
}

// causesOf returns, by kind, what slows a GPU down at one look. What the operator or the load explains is no cause: a
// power limit, clocks that were set, a GPU that idles.
func causesOf(x wire.Sample, loaded bool) map[string]string {
	out := map[string]string{}
	for reason, text := range map[string]string{
		wire.HWThermalSlowdown: "HW thermal slowdown",
		wire.HWPowerBrake:      "HW power brake",
	} {
		if slices.Contains(x.Clocks, reason) {
			out[reason] = text
		}
	}
	if len(out) == 0 && slices.Contains(x.Clocks, wire.HWSlowdown) { // the bit is set beside either of the others, too
		out[wire.HWSlowdown] = "HW slowdown"
	}
	below := func(now, most *int) bool { return now != nil && most != nil && *now < *most }
	switch {
	case !loaded:
	case below(x.PCIeWidth, x.PCIeWidthMax):
		out[causePCIe] = fmt.Sprintf("PCIe link x%d of x%d under load", *x.PCIeWidth, *x.PCIeWidthMax)
	case below(x.PCIeGen, x.PCIeGenMax):
		out[causePCIe] = fmt.Sprintf("PCIe generation %d of %d under load", *x.PCIeGen, *x.PCIeGenMax)
	}
	return out
}

// why returns the causes that lasted at least so long, for people; "" if there are none.
func (s *slow) why(least time.Duration) string {
	var texts []string
	for _, c := range s.causes {
		if c.reported || c.looks >= slowLooks && c.last.Sub(c.first) >= least {
			texts = append(texts, c.text)
		}
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

// linksToSwitches returns how many NVLinks lead to switches: all that the GPU has, or none. Between two cards a bridge
// joins some only.
func linksToSwitches(g agentapi.GPU) int {
	for _, l := range g.Links {
		if l.Peer == "switch" {
			return len(g.NVLinks)
		}
	}
	return 0
}
