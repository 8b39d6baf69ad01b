package market

import (
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// The most that one mount takes in what its host gets, in bytes, without its path: the names, keys and credentials are
// those of the volume, bucket or shared file system.
const (
	volumeBytes = 768
	bucketBytes = 3 << 10
	sharedBytes = 512
)

// HostBytes returns how many bytes of the message to its host a node of the cluster takes, encoded as it is sent, and
// with the longest values for what is not known yet.
func (s Spec) HostBytes() int {
	long := func(n int) string { return strings.Repeat("x", n) }
	ref := long(40) // of an id
	l := agentapi.LeaseSpec{
		LeaseRef: agentapi.LeaseRef{Lease: ref, Epoch: 1 << 30}, Cluster: ref, Node: ref, Rank: MaxNodes, Nodes: MaxNodes,
		Image: s.Image, Digest: long(100), Entrypoint: s.Entrypoint, Command: s.Command, User: s.User, Env: s.Env,
		GPUs: slices.Repeat([]string{long(64)}, s.GPUsPerNode), CPUs: 123456.789, RAMMB: 1 << 40, DiskGB: s.DiskGB,
		DiskLimited: s.DiskLimited, Runtime: s.Runtime, ScratchGB: s.ScratchGB, Egress: s.Egress, RunUntilMS: 1 << 50,
		GraceS: 30,
		Network: agentapi.Network{CIDR: long(18), Address: long(15), MTU: 9000, MinGbps: s.Network.MinGbps,
			Fabric: s.Network.Fabric, Partition: &agentapi.Partition{Fabric: long(64), Cluster: ref, PKey: 1 << 15},
			NCCL: &agentapi.NCCLRequest{MinGbps: s.Network.MinBusbwGbps}, Peers: []agentapi.Peer{}},
	}
	if a := s.RegistryAuth; a != nil {
		l.RegistryAuth = &agentapi.RegistryAuth{Username: a.Username, Password: a.Password}
	}
	for _, p := range s.Ports {
		l.Ports = append(l.Ports, agentapi.Port{Port: p.Port, Protocol: p.Protocol})
	}
	size := agentapi.SizeOf(l) + (s.Nodes-1)*agentapi.PeerBytes
	if s.Nodes > 1 {
		l := agentapi.LeaseSpec{Network: agentapi.Network{Relays: []string{long(256), long(256)}, RelayToken: long(160)}}
		size += agentapi.SizeOf(l) - agentapi.SizeOf(agentapi.LeaseSpec{})
	}
	for _, m := range s.Mounts {
		size += agentapi.SizeOf(m.Path)
		switch {
		case isShared(m):
			size += sharedBytes
		case isBucket(m):
			size += bucketBytes
		default:
			size += volumeBytes
		}
	}
	return size
}

// checkBytes refuses what the message to a host cannot carry while all GPUs of the host are rented like this.
func (s Spec) checkBytes(bad *fault.Fields) {
	limit := max(s.GPUsPerNode, 1) * agentapi.GPUBytes
	if n := s.HostBytes(); n > limit {
		bad.Add(s.largest(), "a node takes %d bytes of the message to its host, and %d are the most at gpus_per_node %d: %s",
			n, limit, s.GPUsPerNode, smaller)
	}
}

// smaller is how a spec gets smaller.
const smaller = "shorten command and env, rent more GPUs per node or fewer nodes, or read large values from a " +
	"bucket, a volume or the image"

// largest returns the field of the spec that takes most.
func (s Spec) largest() string {
	field, most := "nodes", (s.Nodes-1)*agentapi.PeerBytes
	for _, f := range []struct {
		name string
		v    any
	}{{"env", s.Env}, {"command", s.Command}, {"entrypoint", s.Entrypoint}, {"mounts", s.Mounts},
		{"registry_auth", s.RegistryAuth}} {
		if n := agentapi.SizeOf(f.v); n > most {
			field, most = f.name, n
		}
	}
	return field
}
