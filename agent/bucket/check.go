package bucket

import (
	"os"

	"github.com/musterhq/muster/internal/agentapi"
)

// ProblemNoBuckets is the code of a problem that prevents a host from mounting buckets, and nothing else.
const ProblemNoBuckets = "buckets_not_usable"

// Check returns what prevents this host from mounting buckets with a program, muster-mount, or nil.
func Check(program string) *agentapi.Problem {
	for _, need := range []struct{ path, fix string }{
		{program, "Install the agent's release again: muster-mount belongs in the folder of muster-agent."},
		{"/dev/fuse", "Load the kernel's module: modprobe fuse."},
	} {
		if _, err := os.Stat(need.path); err != nil {
			return &agentapi.Problem{
				Code:     ProblemNoBuckets,
				Severity: "warn",
				Cause:    "Buckets cannot be mounted: nodes with buckets are not placed here.",
				Evidence: err.Error(),
				Fix:      need.fix,
			}
		}
	}
	return nil
}
