package fusemount

import (
	"os"

	"github.com/musterhq/muster/internal/agentapi"
)

// ProblemUnusable is the code of a problem that prevents a host from mounting buckets and lazy volumes, and nothing
// else.
const ProblemUnusable = "mounts_not_usable"

// Check returns what prevents this host from mounting with a program, muster-mount, or nil.
func Check(program string) *agentapi.Problem {
	for _, need := range []struct{ path, fix string }{
		{program, "Install the agent's release again: muster-mount belongs in the folder of muster-agent."},
		{"/dev/fuse", "Load the kernel's module: modprobe fuse."},
	} {
		if _, err := os.Stat(need.path); err != nil {
			return &agentapi.Problem{
				Code:     ProblemUnusable,
				Severity: "warn",
				Cause:    "Buckets and lazy volumes cannot be mounted: nodes that have them are not placed here.",
				Evidence: err.Error(),
				Fix:      need.fix,
			}
		}
	}
	return nil
}

// Unlimited returns the problem of a host that cannot limit and count what mounts move over its line.
func Unlimited(err error) *agentapi.Problem {
	return &agentapi.Problem{
		Code:     ProblemUnusable,
		Severity: "warn",
		Cause:    "What buckets and lazy volumes move cannot be limited: nodes that have them are not placed here.",
		Evidence: err.Error(),
		Fix: "Use a kernel and an nft that match control groups (Debian 12, Ubuntu 22.04 or newer), with the unified " +
			"hierarchy mounted at /sys/fs/cgroup or /sys/fs/cgroup/unified.",
	}
}
