package hostinfo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// Lend marks the ports of the RDMA devices that the operator lends to renters of the whole host, and returns what they
// come to, nil if none can be lent. A device that is named and cannot be lent is a problem; the others are lent
// without it. partitions reports whether the host puts its ports into partitions: that separates tenants if they are
// InfiniBand.
func Lend(hcas []agentapi.HCA, named []string, verbs Verbs, partitions bool) (*agentapi.RDMA, []agentapi.Problem) {
	var out agentapi.RDMA
	var problems []agentapi.Problem
	refuse := func(name, why, fix string) {
		problems = append(problems, agentapi.Problem{
			Code:     "fabric_device",
			Severity: "warn",
			Cause:    fmt.Sprintf("%s, which --fabric-device names, is not lent to renters.", name),
			Evidence: why,
			Fix:      fix,
		})
	}
	if why, fix := verbs.refusal(); len(named) > 0 && why != "" {
		refuse(strings.Join(named, ", "), why, fix)
		return nil, problems
	}
	for _, name := range named {
		if !slices.ContainsFunc(hcas, func(h agentapi.HCA) bool { return h.Device == name }) {
			refuse(name, "there is no such RDMA device", "Name one that muster-agent inventory lists.")
		}
	}
	for i := range hcas {
		h := &hcas[i]
		if !slices.Contains(named, h.Device) {
			continue
		}
		why, fix := unfit(*h, verbs)
		if why == "" && out.Link != "" && h.Link() != out.Link {
			why = "it is of another kind (" + h.Link() + ") than the ports before it (" + out.Link + ")"
			fix = "Name devices of one kind: the others do not reach them."
		}
		if why != "" {
			refuse(fmt.Sprintf("%s/%d", h.Device, h.Port), why, fix)
			continue
		}
		h.Lent, out.Link = true, h.Link()
		out.Gbps, out.Rails = out.Gbps+h.Gbps, out.Rails+1
	}
	if out.Rails == 0 {
		return nil, problems
	}
	out.Isolation = agentapi.IsolationSole
	switch {
	case partitions && out.Link == agentapi.LinkInfiniBand:
		out.Isolation = agentapi.IsolationPartition
	case partitions:
		refuse(strings.Join(named, ", "), "partitions are InfiniBand's, and these ports are "+out.Link,
			"Leave out --fabric-program.")
		problems[len(problems)-1].Cause = "--fabric-program has no effect: the fabric has one tenant at a time."
	}
	return &out, problems
}

// unfit says why a port cannot be lent, and what to do; "" if it can.
func unfit(h agentapi.HCA, verbs Verbs) (why, fix string) {
	switch link := h.Link(); {
	case h.NVSwitch:
		return "it belongs to the GPUs' own switches", "Leave it out: renters never get it."
	case h.Verbs == "":
		return "it has no device node for verbs", "Load the kernel's module ib_uverbs."
	case link == "":
		return "its link is " + cmp.Or(h.LinkLayer, "of an unknown kind"), "Leave it out."
	case h.State != "ACTIVE":
		return "it is " + cmp.Or(h.State, "in an unknown state"), "Look at the cable and the subnet manager."
	case h.Gbps == 0:
		return "its speed is not known", "Look at ibstat."
	case link == agentapi.LinkRoCE && verbs.OFED:
		return "the RDMA modules are those of MLNX_OFED, which refuse a RoCE address whose network port is not in the " +
			"program's own network namespace", "Use the modules of the distribution's kernel."
	case link == agentapi.LinkRoCE && h.GIDIndex.Value == nil:
		return "it has no address of RoCE v2", "Give its network port " + h.Netdev + " an IP address, and bring it up."
	}
	return "", ""
}
