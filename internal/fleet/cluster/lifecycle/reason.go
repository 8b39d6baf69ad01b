package lifecycle

import (
	"maps"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
)

// Reason is the code for why a cluster or a node is in its state. The values are those of the REST API.
type Reason string

// What ends a cluster, or a node of it.
const (
	ReasonNone            Reason = ""
	ReasonCompleted       Reason = "completed"
	ReasonReleasedByUser  Reason = "released_by_user"
	ReasonBudgetExhausted Reason = "budget_exhausted"
	ReasonFundsExhausted  Reason = "funds_exhausted"
	ReasonMaxDuration     Reason = "max_duration"
	ReasonWorkloadFailed  Reason = "workload_failed"
	ReasonHostLost        Reason = "host_lost"
	ReasonAgentLost       Reason = "agent_lost"
	ReasonTimeout         Reason = "timeout"
	ReasonPlatformOutage  Reason = "platform_outage"
	// ReasonPeersUnreachable: ranks lost contact although all their hosts are well. No host is to blame.
	ReasonPeersUnreachable Reason = "peers_unreachable"
	ReasonHostReclaimed    Reason = "host_reclaimed" // at once, or with little notice: a host's fault
	ReasonHostWithdrawn    Reason = "host_withdrawn" // with notice
	// ReasonUnsendable: what a node should run cannot be sent to its host. No host is to blame.
	ReasonUnsendable Reason = "unsendable"

	ReasonImageNotFound     Reason = agentapi.ReasonImageNotFound
	ReasonImageUnauthorized Reason = agentapi.ReasonImageUnauthorized
	ReasonImageRefused      Reason = agentapi.ReasonImageRefused
	ReasonImageTooBig       Reason = agentapi.ReasonImageTooBig
	ReasonImageWrongArch    Reason = agentapi.ReasonImageWrongArch
	ReasonImageNewerCUDA    Reason = agentapi.ReasonImageNewerCUDA
	ReasonRegistryAway      Reason = agentapi.ReasonRegistryAway
	ReasonRegistrySlow      Reason = agentapi.ReasonRegistrySlow
	ReasonNoDisk            Reason = agentapi.ReasonNoDisk
	ReasonCommandNotFound   Reason = agentapi.ReasonCommandNotFound
	ReasonPreflightFailed   Reason = agentapi.ReasonPreflightFailed
	ReasonHostInterrupted   Reason = agentapi.ReasonHostInterrupted
	ReasonGPUFailed         Reason = agentapi.ReasonGPUFailed
	ReasonGPUInUse          Reason = agentapi.ReasonGPUInUse
	ReasonRuntimeFailed     Reason = agentapi.ReasonRuntimeFailed
	ReasonNotOffered        Reason = agentapi.ReasonNotOffered
	ReasonScratchFailed     Reason = agentapi.ReasonScratchFailed
	ReasonOverlayFailed     Reason = agentapi.ReasonOverlayFailed
	ReasonRestoreFailed     Reason = agentapi.ReasonRestoreFailed
	ReasonVolumeFenced      Reason = agentapi.ReasonVolumeFenced
	ReasonVolumeUnreadable  Reason = agentapi.ReasonVolumeUnreadable
	ReasonBucketUnusable    Reason = agentapi.ReasonBucketUnusable
	ReasonSharedUnusable    Reason = agentapi.ReasonSharedUnusable
	ReasonGuestDied         Reason = agentapi.ReasonGuestDied
	ReasonRunUntil          Reason = agentapi.ReasonRunUntil
	ReasonExited            Reason = agentapi.ReasonExited
	ReasonSuperseded        Reason = agentapi.ReasonSuperseded
)

// Reasons returns every reason in alphabetical order, ReasonNone first.
func Reasons() []Reason {
	return append([]Reason{ReasonNone}, slices.Sorted(maps.Keys(sentences))...)
}

// Sentence is the text for renters about a reason: what happened and what to do. What was charged depends on whether
// the cluster ever ran; see Explain.
type Sentence struct {
	Happened string
	Do       string
	// NodeOnly reasons explain a node and never end a cluster.
	NodeOnly bool
}

// sentences has one row per reason; a test verifies that it is complete.
var sentences = map[Reason]Sentence{
	ReasonCompleted: {
		Happened: "The command ended with exit code 0 on every rank.",
		Do:       "Logs and usage stay readable here.",
	},
	ReasonReleasedByUser: {Happened: "You released the cluster.", Do: "Logs and usage stay readable here."},
	ReasonBudgetExhausted: {
		Happened: "The budget of this cluster is used up, so it was shut down cleanly.",
		Do:       "To continue, rent again with a higher budget.",
	},
	ReasonFundsExhausted: {
		Happened: "The wallet could not cover more time, so the cluster was shut down cleanly.",
		Do:       "Add credit, then rent again.",
	},
	ReasonMaxDuration: {
		Happened: "The cluster reached the longest duration you set for it.",
		Do:       "To continue, rent again with a longer max_duration.",
	},
	ReasonWorkloadFailed: {
		Happened: "The command ended with an error on at least one rank.",
		Do: "Read the log of the rank that failed first. With restart: on_failure, the command is started again " +
			"automatically.",
	},
	ReasonHostLost: {
		Happened: "A host of the cluster could no longer be reached.",
		Do: "Rent again; on_node_failure: replace lets another host take the rank, ignore continues with the " +
			"remaining ranks.",
	},
	ReasonAgentLost: {
		Happened: "The agent on a host of the cluster stopped reporting, but its node can still be reached on the " +
			"cluster's network.",
		Do: "Rent again; on_node_failure: replace lets another host take the rank.",
	},
	ReasonPeersUnreachable: {
		Happened: "Ranks of the cluster lost contact with each other, and nothing shows which of their hosts is to blame.",
		Do:       "Rent again; you do not get these hosts together for a day.",
	},
	ReasonHostReclaimed: {
		Happened: "The operator of a host took the machine back.",
		Do:       "Rent again; on_node_failure: replace lets another host take the rank.",
	},
	ReasonHostWithdrawn: {
		Happened: "The operator of a host took the machine back and had announced it at least an hour before.",
		Do:       "Rent again; on_node_failure: replace lets another host take the rank.",
	},
	ReasonUnsendable: {
		Happened: "What a node should run could not be sent to its host.",
		Do:       "The detail says why. Shorten command and environment, or rent more GPUs per node.",
	},
	ReasonTimeout: {
		Happened: "The cluster was not ready in time.",
		Do:       "The timeline shows which step of which rank took so long; rent again, on other hosts if it repeats.",
	},
	ReasonPlatformOutage: {
		Happened: "Muster's servers were away for longer than the cluster was authorised to run, so its hosts shut " +
			"it down cleanly.",
		Do: "Rent again.",
	},
	ReasonImageNotFound: {Happened: "The registry does not know the image.", Do: "Check its name and tag."},
	ReasonImageUnauthorized: {
		Happened: "The registry refused access to the image.",
		Do:       "Check the registry credentials, or that the image is public.",
	},
	ReasonImageRefused: {
		Happened: "The image cannot be used as it is: it is malformed, names a user that it does not have, has files where " +
			"others are mounted, is started with too long an environment, or its registry is not on the public internet.",
		Do: "See the detail; correct the image, the environment or the command, or use another image.",
	},
	ReasonImageTooBig: {
		Happened: "The image is too big for the node's disk_gb.",
		Do:       "Rent again with a larger disk_gb, or use a smaller image.",
	},
	ReasonImageWrongArch: {
		Happened: "The image is made for another processor architecture than the host's.",
		Do:       "Use an image for the host's architecture, or one for several.",
	},
	ReasonImageNewerCUDA: {
		Happened: "The image needs a newer CUDA than the host's driver supports.",
		Do:       "Ask for hosts that have it, such as cuda_max>=12.4 in gpu, or use an image for an older CUDA.",
	},
	ReasonRegistryAway: {
		Happened: "A host could not reach the image's registry.",
		Do:       "Check the registry's address and that it answers; then rent again.",
	},
	ReasonRegistrySlow: {
		Happened: "The image's registry sent less than 1 MB/s.",
		Do:       "Use a faster registry or a mirror nearer to the hosts; then rent again.",
	},
	ReasonNoDisk: {
		Happened: "The host's disk has no room for the image.",
		Do:       "Rent again, on another host if it repeats.",
	},
	ReasonCommandNotFound: {
		Happened: "The command does not exist in the image, or may not be executed.",
		Do:       "Check command and image.",
	},
	ReasonPreflightFailed: {
		Happened: "The ranks could not talk to each other well enough over the cluster's network.",
		Do:       "Rent again, or ask for another network scope; the detail names the pair of ranks.",
	},
	ReasonHostInterrupted: {
		Happened: "A host stopped the workload through trouble of its own.",
		Do:       "Rent again; the host's record shows it.",
	},
	ReasonGPUFailed: {
		Happened: "A GPU failed and was taken out of the market.",
		Do:       "Rent again; the GPU is not sold before it passes its checks.",
	},
	ReasonGPUInUse: {
		Happened: "The owner of a host began to use a GPU of it just before your node was to start there.",
		Do:       "Rent again: the GPU is not offered while it is in use.",
	},
	ReasonRuntimeFailed: {
		Happened: "A host's container runtime could not start or watch over the node.",
		Do:       "Rent again, on another host if it repeats.",
	},
	ReasonNotOffered: {
		Happened: "A host no longer has what it was chosen for.",
		Do:       "The detail names it; rent again, and another host is chosen.",
	},
	ReasonScratchFailed: {
		Happened: "A host could not give the node its scratch space, or lost it.",
		Do:       "Rent again, on another host if it repeats.",
	},
	ReasonOverlayFailed: {
		Happened: "A host could not keep up the cluster's network.",
		Do:       "Rent again, on another host if it repeats.",
	},
	ReasonRestoreFailed: {
		Happened: "A volume could not be restored or mounted on a host.",
		Do:       "The detail names it. Its last snapshot stays as it is; rent again, on another host if it repeats.",
	},
	ReasonVolumeFenced: {
		Happened: "A volume of the node is written by another cluster.",
		Do:       "Release that cluster, or rent with the volume read-only.",
	},
	ReasonVolumeUnreadable: {
		Happened: "What was stored of a volume of yours cannot be restored on any host.",
		Do:       "The detail names it and what is wrong. Restore an earlier snapshot of the volume, then rent again.",
	},
	ReasonBucketUnusable: {
		Happened: "A bucket of yours could not be mounted.",
		Do:       "The detail names it and what is wrong. Check it with muster bucket check, then rent again.",
	},
	ReasonSharedUnusable: {
		Happened: "A shared file system could not be mounted on the node's host.",
		Do:       "The detail names it and what is wrong. Rent again; if it repeats, its operator must look at it.",
	},
	ReasonGuestDied: {
		Happened: "A node's network holder ended unexpectedly.",
		Do:       "Rent again, on another host if it repeats.",
	},
	ReasonRunUntil: {
		Happened: "The host stopped the node at the end of the time that was paid for.",
		Do:       "Add credit or raise the budget, then rent again.",
		NodeOnly: true,
	},
	ReasonExited: {Happened: "The command ended.", Do: "See the exit code and the log.", NodeOnly: true},
	ReasonSuperseded: {
		Happened: "A newer start took this node's place.",
		Do:       "Nothing: look at the present start.",
		NodeOnly: true,
	},
}

const (
	chargedNothing = "Nothing was charged."
	chargedProven  = "Only the seconds in which every required rank was proven up are charged."
	creditedHour   = "What the failed node cost in its last hour is credited to you."
)

// Explain returns the full text for a renter: what happened, what was charged, what to do. ran is whether a billing
// window was ever opened. For an unknown reason it explains only the money.
func (r Reason) Explain(ran bool) string {
	charged := chargedNothing
	if ran {
		charged = r.Charged()
	}
	s := sentences[r]
	return Sentences(s.Happened, charged, s.Do)
}

// Happened returns the first sentence only.
func (r Reason) Happened() string { return sentences[r].Happened }

// KnownReason converts a reason from a host to a known one: a host may be newer than this server, or lie.
func KnownReason(reason string) Reason {
	r := Reason(reason)
	if _, ok := sentences[r]; ok {
		return r
	}
	return ReasonRuntimeFailed
}

// hostFaults are the reasons for which a node is lost without its renter's fault.
var hostFaults = []Reason{ReasonHostLost, ReasonAgentLost, ReasonHostInterrupted, ReasonGPUFailed, ReasonGPUInUse,
	ReasonRuntimeFailed, ReasonScratchFailed, ReasonOverlayFailed, ReasonRestoreFailed,
	ReasonGuestDied, ReasonHostReclaimed}

// Charged returns what a loss for this reason means for the bill of a cluster that has run.
func (r Reason) Charged() string { return Sentences(chargedProven, r.Credited()) }

// Credited returns what a renter gets back after a loss for this reason; "" is nothing.
func (r Reason) Credited() string {
	if r.IsHostFault() {
		return creditedHour
	}
	return ""
}

// IsHostFault reports whether a node is lost without its renter's fault.
func (r Reason) IsHostFault() bool { return slices.Contains(hostFaults, r) }

// OfCluster returns the reason that a cluster shows when a node was lost for r.
func (r Reason) OfCluster() Reason {
	if r == ReasonNone || sentences[r].NodeOnly {
		return ReasonHostLost
	}
	return r
}

// Sentences joins sentences and omits empty ones.
func Sentences(sentences ...string) string {
	return strings.Join(strings.Fields(strings.Join(sentences, " ")), " ")
}
