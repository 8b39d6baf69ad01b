package agent

import (
	"context"

	"github.com/musterhq/muster/agent/machine/gpu"
	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/internal/agentapi"
)

// GPUs are the parts of the host's GPU monitor that the agent needs; MonitoredGPUs makes them of a gpu.Monitor.
type GPUs struct {
	Devices   GPUDevices
	Diagnosis GPUDiagnosis
	Telemetry GPUTelemetry
	Owners    GPUOwners
	Leases    GPULeases
	Checks    GPUChecks
	Resets    GPUResets
}

// GPUDevices names the device nodes of GPUs; *gpu.Monitor implements it.
type GPUDevices interface {
	DeviceNodes(uuids ...string) []string
}

// GPUDiagnosis is implemented by *gpu.Diagnosis.
type GPUDiagnosis interface {
	Health() map[string]gpu.Health
	Pending() []agentapi.HealthEvent
	Ack(seq uint64) error
	Changed() <-chan struct{}
}

// GPUTelemetry is implemented by *gpu.Telemetry.
type GPUTelemetry interface {
	Sample(ctx context.Context, uuids ...string) (gpu.Batch, error)
	EnergyMJ(ctx context.Context, uuids ...string) (map[string]int64, error)
	WatchLinks(ctx context.Context, uuids ...string)
}

// GPUOwners is implemented by *gpu.Owners.
type GPUOwners interface {
	InUse(ctx context.Context, uuids ...string) map[string]string
	LeasedBy(leased func() map[string]bool)
	OwnerUse() map[string]int64
}

// GPULeases is implemented by *gpu.Leases.
type GPULeases interface {
	NoteBefore(ctx context.Context, uuids ...string) error
	WaitClean(ctx context.Context, uuids ...string) error
}

// GPUChecks is implemented by *gpu.Checks.
type GPUChecks interface {
	Record(res gpucheck.Result, uuids ...string)
	Due() []string
}

// GPUResets is implemented by *gpu.Resets.
type GPUResets interface {
	Requalify(ctx context.Context, uuid string) error
	CheckedBy(check func(ctx context.Context, uuid string) error)
	Due() []string
}

// MonitoredGPUs returns the GPUs of a monitor.
func MonitoredGPUs(m *gpu.Monitor) GPUs {
	return GPUs{
		Devices:   m,
		Diagnosis: m.Diagnosis,
		Telemetry: m.Telemetry,
		Owners:    m.Owners,
		Leases:    m.Leases,
		Checks:    m.Checks,
		Resets:    m.Resets,
	}
}
