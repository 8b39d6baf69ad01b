package container

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/moby/api/types/container"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/workload/guestenv"
	"github.com/musterhq/muster/internal/agentapi"
)

// Infiniband is the folder of RDMA's device nodes, on a host and in containers.
const Infiniband = "/dev/infiniband"

// addRDMA gives a workload the verbs of exactly these ports, and the connection manager's device. It gets nothing of
// umad and issm, with which a program could manage the fabric, and no capability. RDMA locks the memory that devices
// read and write; what a node locks counts against its memory limit. folder is where the host has the nodes, "" =
// Infiniband.
func addRDMA(hc *container.HostConfig, folder string, ports []agentapi.HCA) {
	if len(ports) == 0 {
		return
	}
	folder = cmp.Or(folder, Infiniband)
	var names []string
	for _, p := range ports {
		if name := filepath.Base(p.Verbs); p.Verbs != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "rdma_cm")); err == nil { // clouds' own devices have none
		names = append(names, "rdma_cm")
	}
	for _, name := range names {
		hc.Devices = append(hc.Devices, container.DeviceMapping{
			PathOnHost:        filepath.Join(folder, name),
			PathInContainer:   Infiniband + "/" + name,
			CgroupPermissions: "rw",
		})
	}
}

// These are of the nodes' measurement with NCCL: where rank 0 waits for the others, past the preflight's port, and for
// how long. A node that waits for an image or a volume longer than that costs the measurement, not the start.
const (
	reducePort = 29401
	reduceJoin = time.Minute
)

// reduceRequest returns what a node measures with NCCL over its ports.
func reduceRequest(lease agentapi.LeaseSpec, ports []agentapi.HCA) *gpucheck.ReduceRequest {
	q := &gpucheck.ReduceRequest{
		Rank:      lease.Rank,
		Addresses: make([]string, lease.Nodes),
		Port:      reducePort,
		JoinMS:    reduceJoin.Milliseconds(),
		Env:       guestenv.NCCL(lease, ports),
		MinGbps:   lease.Network.NCCL.MinGbps,
	}
	q.Addresses[lease.Rank] = lease.Network.Address
	for _, p := range lease.Network.Peers {
		if p.Rank >= 0 && p.Rank < lease.Nodes {
			q.Addresses[p.Rank] = p.Address
		}
	}
	return q
}
