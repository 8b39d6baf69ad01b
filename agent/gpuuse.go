package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// gpuUse reports which GPUs the host's owner uses, and which GPUs cannot be used.
type gpuUse struct {
	gpus      GPUs
	simulated bool
	log       *slog.Logger
}

// refuseInUse refuses a node whose GPUs the host's owner uses: both would run out of memory. The market does not offer
// such a GPU; this check catches an owner who began within the last seconds. The renter sees which GPU it is, but not
// what its owner runs.
func (u *gpuUse) refuseInUse(ctx context.Context, gpus []string) error {
	if len(gpus) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	used := u.gpus.Owners.InUse(ctx, gpus...)
	if len(used) == 0 {
		return nil
	}
	u.log.Warn("a lease is refused: its GPUs are in use on the host itself", "use", used)
	return container.Refusal{
		Reason: agentapi.ReasonGPUInUse,
		Detail: "in use by the host's owner: " + strings.Join(slices.Sorted(maps.Keys(used)), ", "),
	}
}

// noteUse records which processes use a lease's GPUs before anything of the renter's runs, such as the owner's desktop:
// wipe does not wait for these processes. It must be called before the record has an image: without an image wipe waits
// for nothing.
func (u *gpuUse) noteUse(ctx context.Context, gpus []string) {
	if u.simulated || len(gpus) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	if err := u.gpus.Leases.NoteBefore(ctx, gpus...); err != nil {
		u.log.Warn("who uses the GPUs before the lease is not known: its end may wait for them", "err", err)
	}
}

// ownersMB returns how much memory of a node's GPUs the host's own programs use while something of the renter's runs,
// in MiB.
func (u *gpuUse) ownersMB(v view) int64 {
	if !v.rec.Started || v.rec.Outcome != nil {
		return 0
	}
	bytes := int64(0)
	owners := u.gpus.Owners.OwnerUse()
	for _, uuid := range v.spec().GPUs {
		bytes += owners[uuid]
	}
	return bytes >> 20
}

// sick returns which of the GPUs is known to be unusable, and why, or "" if none is.
func (u *gpuUse) sick(uuids ...string) string {
	health := u.gpus.Diagnosis.Health()
	for _, uuid := range uuids {
		if h := health[uuid]; h.State == gpu.Quarantined {
			return uuid + ": " + h.Reason
		}
	}
	return ""
}
