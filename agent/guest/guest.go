// Package guest is how the agent talks to the injected binary (cmd/muster-guest) of a node: where it is mounted, how
// it is started as guest and as workload's init, and the requests it answers.
//
// The guest container runs trusted code only, so what it says is believed. The workload's init is trusted until it
// releases the renter's command; the guest takes no word from the workload after that.
package guest

import (
	"strconv"

	"github.com/musterhq/muster/internal/agentapi"
)

// Where things are inside containers.
const (
	Binary  = "/run/muster/guest" // the injected binary, a read-only file mount in guest and workload
	NodeDir = "/run/muster/node"  // Layout.Node: read-only in the workload, writable in the guest
	HoldDir = "/run/muster/hold"  // Layout.Guest: in the guest only
)

// HoldArgs is the guest container's command.
func HoldArgs(ref agentapi.LeaseRef) []string {
	return []string{Binary, "hold", ref.Lease, strconv.Itoa(ref.Epoch)}
}

// InitArgs is the workload's entry point: the injected binary as PID 1, which resolves command in the image, waits at
// the barrier and runs it. command is the image's entry point and arguments already joined with the renter's.
func InitArgs(ref agentapi.LeaseRef, command []string) []string {
	return append([]string{Binary, "init", ref.Lease, strconv.Itoa(ref.Epoch), "--"}, command...)
}

// Exit codes of the init before the barrier was released. What the renter's command exits with can be the same
// number, so they count only while Workload.State is not Started.
const (
	ExitBroken      = 125 // the platform's own trouble: the guest did not answer
	ExitNotRunnable = 126
	ExitNotFound    = 127
)

// State is how far a workload has come.
type State string

const (
	StateNone      State = ""           // its init has not reported
	StateAtBarrier State = "at_barrier" // the command was found; it waits
	StateReleasing State = "releasing"  // the init is about to become the command; never seen by the agent
	StateStarted   State = "started"    // the command runs or has run
	StateRefused   State = "refused"    // never started: see Reason
)

// Workload is what the init reported. The guest keeps it in its folder, so it outlives the agent.
type Workload struct {
	agentapi.LeaseRef
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // agentapi.ReasonCommandNotFound, ReasonRuntimeFailed
	Detail string `json:"detail,omitempty"`
	AtMS   int64  `json:"at_ms"`             // unix ms by the host's clock
	BootMS int64  `json:"boot_ms,omitempty"` // the same moment by its CLOCK_BOOTTIME, which nobody sets
}

// ExecArgs is the injected binary as a process of a shell in a workload. It becomes the renter's shell or command, is
// a shell itself where the image has none, or serves sftp.
func ExecArgs(r agentapi.ExecRequest) []string {
	if r.Kind == agentapi.ExecSFTP {
		return []string{Binary, "sftp"}
	}
	where := "home"
	if r.WorkDir {
		where = "workdir"
	}
	args := []string{Binary, "exec", where, strconv.Itoa(r.Cols), strconv.Itoa(r.Rows)}
	if r.Kind == agentapi.ExecCommand {
		args = append(args, "--", r.Command)
	}
	return args
}
