// Package guest is how the agent uses the injected binary (cmd/muster-guest) of a node: where it is mounted, how it is
// started as guest and as the workload's init, and the requests it answers.
//
// The guest container runs trusted code only, so its reports are trusted. The workload's init is trusted until it
// releases the renter's command; the guest accepts nothing from the workload after that.
package guest

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/internal/agentapi"
)

// These are paths inside containers.
const (
	Binary  = agentapi.GuestBinary // the injected binary, a read-only file mount in guest and workload
	NodeDir = "/run/muster/node"   // Layout.Node: read-only in the workload, writable in the guest
	HoldDir = "/run/muster/hold"   // Layout.Guest: in the guest only
	JobDir  = "/job"               // where DeepSpeed's launcher looks for the host file (DLTS_HOSTFILE)
)

// HoldArgs returns the guest container's command.
func HoldArgs(ref agentapi.LeaseRef) []string {
	return []string{Binary, "hold", ref.Lease, strconv.Itoa(ref.Epoch)}
}

// Proof is what a workload's init proves before the barrier about the node's GPUs. The zero Proof is nothing.
type Proof struct {
	Devices []string // device nodes to open
	GPUs    []string // UUIDs of the GPUs to check with CUDA (package gpucheck)
	Fake    bool     // the check uses the fake CUDA library
	// Reduce is what the node measures with NCCL together with the cluster's others; nil: nothing.
	Reduce *gpucheck.ReduceRequest
}

// InitArgs returns the workload's entry point: the injected binary as PID 1, which proves that the GPUs work, resolves
// command in the image, waits at the barrier and runs it. command is the image's entry point and arguments joined with
// the renter's.
func InitArgs(ref agentapi.LeaseRef, proof Proof, command []string) []string {
	args := []string{Binary, "init", ref.Lease, strconv.Itoa(ref.Epoch)}
	if len(proof.Devices) > 0 {
		args = append(args, "--devices", strings.Join(proof.Devices, ","))
	}
	if len(proof.GPUs) > 0 {
		args = append(args, "--gpus", strings.Join(proof.GPUs, ","))
		if proof.Fake {
			args = append(args, "--fake-cuda")
		}
		if b, err := json.Marshal(proof.Reduce); err == nil && proof.Reduce != nil {
			args = append(args, "--nccl", string(b))
		}
	}
	return append(append(args, "--"), command...)
}

// CheckArgs returns the command of a container that only checks GPUs: it prints a gpucheck.Result. Without GPUs it only
// opens the proof's devices.
func CheckArgs(proof Proof) []string {
	if len(proof.GPUs) == 0 {
		return []string{Binary, "gpucheck", "--devices", strings.Join(proof.Devices, ",")}
	}
	args := []string{Binary, "gpucheck", strings.Join(proof.GPUs, ",")}
	if proof.Fake {
		args = append(args, "--fake-cuda")
	}
	return args
}

// These are exit codes of the init before the barrier was released. The renter's command may exit with the same
// numbers, so they count only while Workload.State is not Started.
const (
	ExitBroken      = 125 // the platform's own failure: the guest did not answer
	ExitNotRunnable = 126
	ExitNotFound    = 127
)

// State is how far a workload has come.
type State string

const (
	StateNone      State = ""           // its init has not reported
	StateAtBarrier State = "at_barrier" // the command was found; it waits
	StateReleasing State = "releasing"  // the init is about to execute the command; the agent never sees this state
	StateStarted   State = "started"    // the command runs or has run
	StateRefused   State = "refused"    // never started: see Reason
)

// Workload is what the init reported. The guest stores it in its folder, so it outlives the agent.
type Workload struct {
	agentapi.LeaseRef
	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // agentapi.ReasonCommandNotFound, ReasonRuntimeFailed, ReasonGPUFailed
	Detail string `json:"detail,omitempty"`
	// GPUCheck is the failure of the check of the GPUs, if that is why the workload was refused.
	GPUCheck *gpucheck.Failure `json:"gpu_check,omitempty"`
	// NCCL is what the node measured with NCCL; nil: nothing was asked for.
	NCCL *agentapi.NCCL `json:"nccl,omitempty"`

	AtMS   int64 `json:"at_ms"`             // milliseconds since 1970 by the host's clock
	BootMS int64 `json:"boot_ms,omitempty"` // the same moment by CLOCK_BOOTTIME, which cannot be set
}

// ExecArgs returns the command line of a process of a shell in a workload: the injected binary, which executes the
// renter's shell or command, is a shell itself if the image has none, or serves sftp.
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
