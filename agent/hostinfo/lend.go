package hostinfo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
)

// Lend marks the ports of the RDMA devices that the operator lends to renters of the whole host, and returns what they
// come to, nil if none can be lent. A device that is named and cannot be lent is a problem; the others are lent without
// it. lockable reports whether programs may lock as much memory as RDMA needs.
func Lend(hcas []agentapi.HCA, named []string, lockable bool) (*agentapi.RDMA, []agentapi.Problem) {
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
	if len(named) > 0 && !lockable {
		refuse(strings.Join(named, ", "), "programs may not lock memory without limit",
			"Run Docker and the agent with the capability CAP_SYS_RESOURCE.")
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
		if why, fix := unfit(*h); why != "" {
			refuse(fmt.Sprintf("%s/%d", h.Device, h.Port), why, fix)
			continue
		}
		h.Lent = true
		out.Gbps, out.Rails = out.Gbps+h.Gbps, out.Rails+1
	}
	if out.Rails == 0 {
		return nil, problems
	}
	out.Isolation = agentapi.IsolationSole
	return &out, problems
}

// unfit says why a port cannot be lent, and what to do; "" if it can.
func unfit(h agentapi.HCA) (why, fix string) {
	switch {
	case h.NVSwitch:
		return "it belongs to the GPUs' own switches", "Leave it out: renters never get it."
	case h.Verbs == "":
		return "it has no device node for verbs", "Load the kernel's module ib_uverbs."
	case h.LinkLayer != "InfiniBand" && h.Driver != "efa":
		// A RoCE port's addresses belong to its network port, which stays in the host's network namespace.
		return "it is " + cmp.Or(h.LinkLayer, "of an unknown kind") + ": RoCE inside nodes is not supported",
			"Leave it out: clusters use it as an ordinary network port."
	case h.State != "ACTIVE":
		return "it is " + cmp.Or(h.State, "in an unknown state"), "Look at the cable and the subnet manager."
	case h.Gbps == 0:
		return "its speed is not known", "Look at ibstat."
	}
	return "", ""
}

// Lockable reports whether programs started here may lock memory without limit.
func Lockable() bool {
	may, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_RESOURCE, 0, 0, 0)
	return err == nil && may != 0
}
