// Package fakeprofile writes the file that drives the fake NVML library (agent/gpu/fakenvml), for `muster dev`'s local
// hosts and for tests: which GPUs a host has, and the faults they show. The library reads the file anew at every call
// after it changed, so a fault written here shows at once in a running agent.
package fakeprofile

import (
	"github.com/musterhq/muster/internal/fault"
)

// Env names the profile file to the fake library.
const Env = "MUSTER_FAKE_NVML"

// Host makes a profile of count GPUs of a known model ("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 4090", …). The
// UUIDs follow from seed alone: the same seed gives the same GPUs for ever, different seeds different ones.
func Host(model string, count int, seed string) (*Profile, error) { return nil, notYet }

// Profile is a simulated host's GPUs.
type Profile struct {
	GPUs []GPU
}

// GPU is one simulated device.
type GPU struct {
	UUID string
}

// Load reads a profile file.
func Load(path string) (*Profile, error) { return nil, notYet }

// Save writes the profile file in one step: a reader sees the old one or the new one.
func (p *Profile) Save(path string) error { return notYet }

// Change loads the profile at path, lets change alter it and saves it: how a fault is injected into a running host.
func Change(path string, change func(*Profile) error) error { return notYet }

// SetProcesses tells the fake library which processes of this machine use which GPU, by UUID. They show as compute
// processes, use the GPU's memory and make it busy as long as they live.
func SetProcesses(profilePath string, processes map[string][]Process) error { return notYet }

// Process is a process of this machine that uses a GPU.
type Process struct {
	PID   int
	MemMB int64
}

var notYet = fault.New(fault.Unavailable, "the fake profile is not there yet")
