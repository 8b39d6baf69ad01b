package container

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/docker/go-units"
	"github.com/moby/moby/api/types/container"

	"github.com/musterhq/muster/internal/agentapi"
)

// infiniband is the folder of the device nodes of RDMA. Tests have another.
var infiniband = "/dev/infiniband"

// addRDMA gives a workload the verbs of exactly these ports, and the connection manager's device. It gets nothing of
// umad and issm, with which a program could manage the fabric, and no capability. RDMA locks the memory that devices
// read and write; what a node locks counts against its memory limit.
func addRDMA(hc *container.HostConfig, ports []agentapi.HCA) {
	if len(ports) == 0 {
		return
	}
	var names []string
	for _, p := range ports {
		if name := filepath.Base(p.Verbs); p.Verbs != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if _, err := os.Stat(filepath.Join(infiniband, "rdma_cm")); err == nil { // clouds' own devices have none
		names = append(names, "rdma_cm")
	}
	for _, name := range names {
		hc.Devices = append(hc.Devices, container.DeviceMapping{
			PathOnHost:        filepath.Join(infiniband, name),
			PathInContainer:   "/dev/infiniband/" + name,
			CgroupPermissions: "rw",
		})
	}
	hc.Ulimits = append(hc.Ulimits, &units.Ulimit{Name: "memlock", Soft: -1, Hard: -1})
}
