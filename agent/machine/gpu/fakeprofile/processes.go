package fakeprofile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
)

// Process is a process of this machine that uses a GPU.
type Process struct {
	PID      int
	MemMB    int64 // MiB of the GPU's memory; 0: the driver does not report it
	Load     int   // percent
	Graphics bool  // true: it draws, as a desktop does; false: it computes
}

// SetProcesses sets which processes of this machine use which GPU in the fake library, by UUID; each call replaces the
// whole set. The processes use the GPU's memory and make it busy as long as they live. A host whose containers get no
// device (attach mode none) calls it as leases start and end.
func SetProcesses(profilePath string, processes map[string][]Process) error {
	var b bytes.Buffer
	for _, uuid := range slices.Sorted(maps.Keys(processes)) {
		for _, p := range processes[uuid] {
			if p.PID <= 0 || p.MemMB < 0 || p.Load < 0 || p.Load > 100 {
				return fmt.Errorf("process %d on %s: out of range", p.PID, uuid)
			}
			kind := ""
			if p.Graphics {
				kind = " graphics"
			}
			fmt.Fprintf(&b, "%s %d %d %d%s\n", uuid, p.PID, p.MemMB, p.Load, kind)
		}
	}
	return replace(profilePath+".processes", b.Bytes())
}
