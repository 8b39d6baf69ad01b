// Package fabric puts a host's RDMA ports into the partition of one cluster. The subnet manager alone can do that: a
// program of the operator's asks it to, and the kernel's tables of partition keys prove that it did.
//
// Invariants:
//   - Join returns ports only if each of them is a full member of the partition and of no other. Ports that are members
//     of nothing in common exchange no packets, so a port in an older cluster's partition is never handed out.
//   - The program states what is to be, not what changes: it may run again at any time, after a crash too.
//   - Leave may fail. A port that stays in a partition is used by nothing until Join has moved it.
package fabric

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// Manager asks the subnet manager through a program.
type Manager struct {
	Program string // an absolute path
	Sys     string // the sysfs tree, "" = /sys
	// Patience is how long the subnet manager may take after the program has ended; default 30 s.
	Patience time.Duration
}

// programTime is how long the program may take.
const programTime = time.Minute

// Join puts the ports into the partition, out of all others, and returns them with the partition's indexes.
func (m Manager) Join(ctx context.Context, p agentapi.Partition, ports []agentapi.HCA) ([]agentapi.HCA, error) {
	if p.PKey <= 0 || p.PKey >= 0x7fff {
		return nil, fault.New(fault.Invalid, "partition key %#x is out of range", p.PKey)
	}
	if err := m.run(ctx, "join", p, ports); err != nil {
		return nil, err
	}
	patience := m.Patience
	if patience == 0 {
		patience = 30 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		joined, err := m.joined(p, ports)
		if err == nil {
			return joined, nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// joined returns the ports with their indexes, or an error that names a port which is not in the partition alone.
func (m Manager) joined(p agentapi.Partition, ports []agentapi.HCA) ([]agentapi.HCA, error) {
	out := make([]agentapi.HCA, len(ports))
	for i, port := range ports {
		index, err := hostinfo.SolePartition(m.Sys, port, p.PKey)
		if err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "the subnet manager has not made %s/%d a full member of "+
				"partition %#04x and of no other", port.Device, port.Port, p.PKey)
		}
		out[i] = port
		out[i].PKeyIndex = agentapi.Known(index)
		if first := *out[0].PKeyIndex.Value; index != first { // NCCL takes one index for all ports
			return nil, fault.New(fault.Unavailable, "partition %#04x is at index %d of %s/%d and at index %d of %s/%d",
				p.PKey, first, ports[0].Device, ports[0].Port, index, port.Device, port.Port)
		}
	}
	return out, nil
}

// Check reports whether the ports are in the partition, and in no other.
func (m Manager) Check(p agentapi.Partition, ports []agentapi.HCA) error {
	_, err := m.joined(p, ports)
	return err
}

// Leave takes the ports out of the partition.
func (m Manager) Leave(ctx context.Context, p agentapi.Partition, ports []agentapi.HCA) error {
	return m.run(ctx, "leave", p, ports)
}

// run runs the program: ACTION FABRIC CLUSTER PKEY PORT-GUID…, the key with the bit for full members.
func (m Manager) run(ctx context.Context, action string, p agentapi.Partition, ports []agentapi.HCA) error {
	args := []string{action, p.Fabric, p.Cluster, fmt.Sprintf("%#04x", p.PKey|0x8000)}
	for _, port := range ports {
		if port.Link() != agentapi.LinkInfiniBand || port.PortGUID == "" {
			return fault.New(fault.Unavailable, "%s/%d has no GUID of InfiniBand", port.Device, port.Port)
		}
		args = append(args, "0x"+port.PortGUID)
	}
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, m.Program, args...)
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fault.Wrap(err, fault.Unavailable, "%s %s says %q", m.Program, action,
			strings.TrimSpace(clip(said.String())))
	}
	return nil
}

// clip keeps the end of what a program printed.
func clip(s string) string {
	const most = 500
	if len(s) > most {
		s = s[len(s)-most:]
	}
	return strings.ToValidUTF8(s, "?")
}
