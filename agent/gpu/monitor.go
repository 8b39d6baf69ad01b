// Package gpu is a host's GPUs as the agent sees them: what there is, what it does, and whether it can be trusted.
//
// What always holds: NVML is never loaded into the agent. A sick GPU hangs a call for minutes and a symbol missing in
// an older driver kills its process, so NVML lives in a child (package probe) behind a deadline per call; a child that
// hangs or dies is replaced, and the agent goes on. A GPU's health only gets better by evidence: what is quarantined
// stays so across restarts of the agent until the GPU was reset and passed a check.
package gpu

import (
	"context"
	"log/slog"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// Config is what a Monitor needs. Zero values are the defaults named.
type Config struct {
	Exe         []string     // command that runs the probe; default: this executable with the argument "probe"
	Env         []string     // added to the probe's environment, "MUSTER_FAKE_NVML=…"
	LibraryPath string       // NVML library; "" = libnvidia-ml.so.1 where the loader finds it
	StateDir    string       // where health is kept; "" = nowhere (for a look at the inventory)
	Logger      *slog.Logger // default: discards
}

// Inventory is the GPU part of a host's inventory.
type Inventory struct {
	Driver, CUDAMax, NVMLVersion string
	Simulated                    bool // the NVML library is our fake
	GPUs                         []agentapi.GPU
	Topology                     [][]string
	Problems                     []agentapi.Problem
}

// Fill writes the GPU part into inv; problems are appended.
func (i Inventory) Fill(inv *agentapi.Inventory) {}

// Batch is samples taken together. GPUSample.AtMS is left 0: who sends them knows the anchor that maps BootMS.
type Batch struct {
	BootMS  int64 // CLOCK_BOOTTIME, milliseconds
	Samples []agentapi.GPUSample
}

// Health is what the agent holds of one GPU.
type Health struct {
	State  State
	Reason string // for people; "" when healthy
}

// State of a GPU's health, as in agentapi.HealthEvent.
type State string

const (
	Healthy     State = "healthy"
	Suspect     State = "suspect"     // runs what it runs, gets nothing new
	Quarantined State = "quarantined" // not to be used: what runs on it is not good
)

// Use is who uses a GPU's memory now.
type Use struct {
	MemUsed   int64 // bytes, without what the driver reserves
	Processes []Process
}

// Process holds a context on a GPU.
type Process struct {
	PID     int   // in the host's PID namespace
	MemUsed int64 // bytes; 0 where not told
}

// Monitor watches the GPUs of this host. Its methods may be called concurrently.
type Monitor struct{}

// Start starts the probe and the watching of health. A host without an NVML library or without GPUs is no error: the
// inventory then says so in its problems. It fails only when the state directory cannot be used.
func Start(ctx context.Context, cfg Config) (*Monitor, error) { return nil, notYet }

// Inventory asks the driver what there is. GPUs that fell away since boot are listed with what was known of them.
func (m *Monitor) Inventory(ctx context.Context) (Inventory, error) { return Inventory{}, notYet }

// Sample reads the named GPUs (none named: all). A GPU that does not answer in time is left out.
func (m *Monitor) Sample(ctx context.Context, uuids ...string) (Batch, error) {
	return Batch{}, notYet
}

// EnergyMJ reads the energy counters of the named GPUs in millijoules since the driver was loaded. GPUs that do not
// tell are left out. Add differences with EnergyUsed: a counter that went down was reset.
func (m *Monitor) EnergyMJ(ctx context.Context, uuids ...string) (map[string]int64, error) {
	return nil, notYet
}

// EnergyUsed is the millijoules used between two readings of one counter, counting from zero after a reset.
func EnergyUsed(before, after int64) int64 {
	if after < before {
		return after
	}
	return after - before
}

// UseOf tells who uses a GPU's memory.
func (m *Monitor) UseOf(ctx context.Context, uuid string) (Use, error) { return Use{}, notYet }

// WaitClean returns nil once no process holds the GPUs and their memory is free, else, when ctx ends, what is left.
// Call it after a lease's containers are gone and before its GPUs are given to another.
func (m *Monitor) WaitClean(ctx context.Context, uuids ...string) error { return notYet }

// Health is the present health by UUID, of every GPU ever seen on this host that still counts.
func (m *Monitor) Health() map[string]Health { return nil }

// Pending are the health events not acknowledged yet, oldest first. They survive restarts of the agent.
func (m *Monitor) Pending() []agentapi.HealthEvent { return nil }

// Ack lets go of the events up to and including seq: the server has committed them (SyncReply.HealthAck).
func (m *Monitor) Ack(seq uint64) error { return notYet }

// Changed gets a value (never blocks, at most one waits) when health changed: sync now.
func (m *Monitor) Changed() <-chan struct{} { return nil }

// Requalify resets a quarantined GPU (which must be out of use) and, when it passes the check, makes it healthy.
func (m *Monitor) Requalify(ctx context.Context, uuid string) error { return notYet }

// Close ends the probe. It returns at once even when the probe is stuck in the driver.
func (m *Monitor) Close() error { return nil }

var notYet = fault.New(fault.Unavailable, "the GPU probe is not there yet")
